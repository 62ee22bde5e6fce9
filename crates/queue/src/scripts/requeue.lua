-- Requeues dead jobs: due after a delay, no try spent, the payload unchanged.
--
-- KEYS    as in lib.lua, the queues to search
-- ARGV    1 now, 2 wake channel, 3 delay in ms, then the ids
-- RETURNS one code per id: 1 requeued, 2 not dead: nothing changes
-- BOUND   the ids, each constant per queue; the caller sends at most 500

local REQUEUED, NOT_DEAD = 1, 2
local PAYLOAD = ',"payload":'
local delay_ms = tonumber(ARGV[3])
local due = due_after(delay_ms)
local codes, by_queue = {}, {}
for n = 4, #ARGV do
  local id = ARGV[n]
  local q, place = place_of(id)
  if place ~= IS_DEAD then
    codes[#codes + 1] = NOT_DEAD
  else
    codes[#codes + 1] = REQUEUED
    local record = redis.call('HGET', DEAD, id) or ''
    redis.call('ZREM', dead_key(q), id)
    redis.call('HDEL', DEAD, id)
    local _, before = string.find(record, PAYLOAD, 1, true)
    local envelope = before and string.sub(record, before + 1, -2) or 'null'
    if envelope ~= 'null' then redis.call('HSET', JOBS, id, envelope) end
    if delay_ms > 0 then redis.call('HSET', TRIES, id, PUT_OFF) end
    append(by_queue, q, due, id)
  end
end
requeue_all(by_queue)
return codes
