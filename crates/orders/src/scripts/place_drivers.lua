-- Adds drivers to an index and renews the index's expiry in one step. So a process that dies leaves no index without one.
--
-- KEYS    1 index
-- ARGV    1 seconds until the index expires; then longitude, latitude and id of each driver
-- RETURNS the number of drivers added
-- BOUND   the drivers of one call

local added = redis.call('GEOADD', KEYS[1], unpack(ARGV, 2))
redis.call('EXPIRE', KEYS[1], ARGV[1])
return added
