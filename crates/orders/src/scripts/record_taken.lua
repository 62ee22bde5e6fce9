-- Records the offer that took the order, unless other offers have replaced it.
--
-- KEYS    1 offers
-- ARGV    1 offer, 2 driver
-- RETURNS the number of fields added
-- BOUND   two fields

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('HSET', KEYS[1], 'taken', ARGV[1])
