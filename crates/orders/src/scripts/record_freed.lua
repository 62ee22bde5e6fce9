-- Schedules drivers for a search of waiting orders. A driver that is already scheduled keeps the earlier time.
--
-- KEYS    1 set of drivers
-- ARGV    1 delay in ms, 2 seconds until the set expires; then the drivers
-- RETURNS 1
-- BOUND   the drivers that one change frees

local time = redis.call('TIME')
local at = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]
for n = 3, #ARGV do redis.call('ZADD', KEYS[1], 'LT', at, ARGV[n]) end
return redis.call('EXPIRE', KEYS[1], ARGV[2])
