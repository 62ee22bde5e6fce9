-- Returns all data of one job.
--
-- KEYS    as in lib.lua, the queues to search
-- ARGV    1 now, 2 wake channel (unused), 3 id
-- RETURNS nil when absent; else {queue number, state (due | suspect | leased | parked | dead), score, lease text or
--         nil, failed, lost, envelope or nil, dead record or nil, for a parked job {group, own name, start of the wait,
--         own name it waits for or '-', number of jobs before it, the first 10 of them, holder of that own name or nil}
--         or nil, end of its slots or nil}
-- BOUND   constant per queue

local FIRST_BEFORE = 10
local id = ARGV[3]
for q = 1, QUEUES do
  for state, key in pairs({ due = due_key(q), suspect = suspects_key(q), leased = leased_key(q), parked = parked_key(q),
    dead = dead_key(q) }) do
    local score = redis.call('ZSCORE', key, id)
    if score then
      local failed, lost = parse_tries(redis.call('HGET', TRIES, id))
      local parked = false
      if state == 'parked' then
        local slots = open_slots()
        local need = slots.find_parked(id)
        parked = { need.group, need.own, need.since, need.last, slots.look_ahead(need, FIRST_BEFORE) }
      end
      return { q, state, score, redis.call('HGET', LEASES, id), failed, lost, redis.call('HGET', JOBS, id),
        redis.call('HGET', DEAD, id), parked, redis.call('ZSCORE', slot_key('slot_ends'), id) }
    end
  end
end
return false
