-- Replaces an index with a complete new one.
--
-- KEYS    1 new index, 2 index
-- ARGV    1 seconds until the index expires
-- RETURNS OK
-- BOUND   two keys

redis.call('EXPIRE', KEYS[1], ARGV[1])
return redis.call('RENAME', KEYS[1], KEYS[2])
