-- Everything known of one job.
--
-- KEYS    as in lib.lua, the queues to look in
-- ARGV    1 now, 2 wake channel (unused), 3 id
-- RETURNS nil when absent; else {queue number, state (due | suspect | leased | dead), score, lease text or nil, failed, lost,
--         envelope or nil, dead record or nil}
-- BOUND   constant per queue

local id = ARGV[3]
for q = 1, QUEUES do
  for state, key in pairs({ due = due_key(q), suspect = suspects_key(q), leased = leased_key(q), dead = dead_key(q) }) do
    local score = redis.call('ZSCORE', key, id)
    if score then
      local failed, lost = parse_tries(redis.call('HGET', TRIES, id))
      return { q, state, score, redis.call('HGET', LEASES, id), failed, lost, redis.call('HGET', JOBS, id),
        redis.call('HGET', DEAD, id) }
    end
  end
end
return false
