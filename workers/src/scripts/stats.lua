-- Counts of each queue.
--
-- KEYS    as in lib.lua, the queues asked for
-- ARGV    1 now, 2 wake channel (unused)
-- RETURNS per queue: {due, scheduled, leased, dead, 1 if paused, age of the oldest due job in ms or -1,
--         jobs falling due within the next minute}
-- BOUND   constant per queue: counts are taken from the sorted sets' ranks

local MINUTE_MS = 60000
local answer = {}
for q = 1, QUEUES do
  local due = redis.call('ZCOUNT', due_key(q), '-inf', now)
  local head = redis.call('ZRANGE', due_key(q), 0, 0, 'WITHSCORES')
  answer[q] = {
    due,
    redis.call('ZCARD', due_key(q)) - due,
    redis.call('ZCARD', leased_key(q)),
    redis.call('ZCARD', dead_key(q)),
    redis.call('SISMEMBER', PAUSED, queue_name(q)),
    due > 0 and now - tonumber(head[2]) or -1,
    redis.call('ZCOUNT', due_key(q), '(' .. whole(now), now + MINUTE_MS),
  }
end
return answer
