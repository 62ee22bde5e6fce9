-- Removes and returns the drivers whose time has come, longest wait first.
--
-- KEYS    1 set of drivers
-- ARGV    1 maximum number of drivers
-- RETURNS the drivers
-- BOUND   ARGV 1

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local drivers = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
if #drivers > 0 then redis.call('ZREM', KEYS[1], unpack(drivers)) end
return drivers
