-- Copies the settings of a binding, in a cluster.
--
-- KEYS    1 cfg
-- ARGV    1 JSON of the binding
-- RETURNS the number of keys removed or fields added
-- BOUND   one key

local b = cjson.decode(ARGV[1])
if b.deleted then return redis.call('DEL', KEYS[1]) end
return redis.call('HSET', KEYS[1], unpack(b.config))
