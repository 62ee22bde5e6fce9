-- Copies bindings for readers outside dispatchq, all in one call. A copy that is not newer is skipped. This script is
-- for a single Redis server, because in a cluster each key has its own slot.
--
-- KEYS    per binding: state, cfg, lock, hb; last wrk:cmd ARGV    1 maximum length of wrk:cmd; then one JSON per
-- binding RETURNS 1 BOUND   the bindings of one call

local kept = ARGV[1]
for i = 1, #ARGV - 1 do
  local b, k = cjson.decode(ARGV[i + 1]), 4 * (i - 1)
  local known = redis.call('HGET', KEYS[k + 1], 'version')
  if tonumber(b.version) > tonumber(known or -1) then
    if b.deleted then
      redis.call('DEL', KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4])
    else
      redis.call('HSET', KEYS[k + 1], 'state', b.state, 'reason', b.reason, 'updated_at', b.updated_at, 'version', b.version,
        'owner', b.owner, 'cycle', b.cycle, 'phase', b.phase, 'row', b.row)
      redis.call('HSET', KEYS[k + 2], unpack(b.config))
      if b.lock ~= '' then
        redis.call('SET', KEYS[k + 3], b.lock, 'PX', b.lock_ms)
      else
        redis.call('DEL', KEYS[k + 3])
      end
    end
  end
  for _, c in ipairs(b.commands) do
    redis.call('XADD', KEYS[#KEYS], 'MAXLEN', '~', kept, '*', 'binding_id', b.id, 'command', c.command, 'reason', c.reason,
      'actor', c.actor, 'at', c.at)
  end
end
return 1
