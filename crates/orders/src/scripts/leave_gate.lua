-- Ends the attempt of a driver whose accept Postgres refused. Removes the lock if this driver holds it. Removes the offer,
-- so that the next answer to it is checked in Postgres.
--
-- KEYS    1 lock, 2 offers
-- ARGV    1 driver, 2 offer
-- RETURNS the number of offers removed
-- BOUND   one key and one field

if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return redis.call('HDEL', KEYS[2], ARGV[2])
