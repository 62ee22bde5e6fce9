-- Removes the heartbeat of a deleted binding, in a cluster.
--
-- KEYS    1 hb
-- ARGV    1 JSON of the binding
-- RETURNS the number of keys removed
-- BOUND   one key

local b = cjson.decode(ARGV[1])
if b.deleted then return redis.call('DEL', KEYS[1]) end
return 0
