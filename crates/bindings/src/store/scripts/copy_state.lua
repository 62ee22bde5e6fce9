-- Copies the state of a binding, in a cluster. The other copy_ scripts write one key each, as copy_bindings.lua does. After
-- two concurrent changes a key may keep the earlier values until the next change. Readers do not decide by these copies.
--
-- KEYS    1 state
-- ARGV    1 JSON of the binding
-- RETURNS 1 written, 0 the copy was not newer
-- BOUND   one key

local b = cjson.decode(ARGV[1])
if tonumber(b.version) <= tonumber(redis.call('HGET', KEYS[1], 'version') or -1) then return 0 end
if b.deleted then
  redis.call('DEL', KEYS[1])
else
  redis.call('HSET', KEYS[1], 'state', b.state, 'reason', b.reason, 'updated_at', b.updated_at, 'version', b.version,
    'owner', b.owner, 'cycle', b.cycle, 'phase', b.phase, 'row', b.row)
end
return 1
