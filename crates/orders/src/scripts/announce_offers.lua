-- Replaces the offers of an order.
--
-- KEYS    1 offers
-- ARGV    1 ms until the last offer expires; then offer and driver of each
-- RETURNS 1
-- BOUND   the drivers asked at once

redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return redis.call('PEXPIRE', KEYS[1], ARGV[1])
