-- Copies the limits of an area for readers outside dispatchq.
--
-- KEYS    1 hash ARGV    1 threshold, 2 seconds for which an order counts, 3 seconds until the copy expires RETURNS 1
-- BOUND   one key

redis.call('HSET', KEYS[1], 'threshold', ARGV[1], 'timeout_seconds', ARGV[2])
return redis.call('EXPIRE', KEYS[1], ARGV[3])
