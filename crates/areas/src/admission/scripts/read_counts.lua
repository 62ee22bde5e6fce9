-- Removes orders that no longer count, and returns the counts of an area.
--
-- KEYS    1 marker that the set is complete, 2 set of waiting orders, 3 busy: 'ms:threshold', 4 average wait
-- RETURNS nothing while the marker is missing; else the number of orders, busy (empty: not busy), the time in ms until which
--         the oldest order counts (0: the set is empty), the average wait in seconds (empty: unknown)
-- BOUND   the orders that expired since the last call

if redis.call('EXISTS', KEYS[1]) == 0 then return false end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
local oldest = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
return { redis.call('ZCARD', KEYS[2]), redis.call('GET', KEYS[3]) or '', tonumber(oldest[2] or 0),
         redis.call('GET', KEYS[4]) or '' }
