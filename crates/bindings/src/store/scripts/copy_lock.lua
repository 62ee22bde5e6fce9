-- Copies the claim of a binding, in a cluster.
--
-- KEYS    1 lock
-- ARGV    1 JSON of the binding
-- RETURNS the number of keys removed, or 1
-- BOUND   one key

local b = cjson.decode(ARGV[1])
if b.deleted or b.lock == '' then return redis.call('DEL', KEYS[1]) end
redis.call('SET', KEYS[1], b.lock, 'PX', b.lock_ms)
return 1
