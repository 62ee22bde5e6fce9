-- Counts the jobs of each queue.
--
-- KEYS    as in lib.lua, the requested queues
-- ARGV    1 now, 2 wake channel (unused)
-- RETURNS per queue: {due, scheduled, leased, dead, 1 if paused, age of the oldest due job in ms or -1, jobs that
--         become due within the next minute, suspects, parked, jobs that become due between 30 s and 90 s from now};
--         suspects are included in due and scheduled
-- BOUND   constant per queue: the sorted sets count by rank

local MINUTE_MS, HALF_MS = 60000, 30000
local answer = {}
for q = 1, QUEUES do
  local due, waiting, next_minute, falling_due, oldest = 0, 0, 0, 0, math.huge
  for _, key in ipairs({ due_key(q), suspects_key(q) }) do
    due = due + redis.call('ZCOUNT', key, '-inf', now)
    waiting = waiting + redis.call('ZCARD', key)
    next_minute = next_minute + redis.call('ZCOUNT', key, '(' .. whole(now), now + MINUTE_MS)
    falling_due = falling_due + redis.call('ZCOUNT', key, '(' .. whole(now + HALF_MS), now + HALF_MS + MINUTE_MS)
    local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    oldest = math.min(oldest, head[2] and tonumber(head[2]) or math.huge)
  end
  answer[q] = {
    due,
    waiting - due,
    redis.call('ZCARD', leased_key(q)),
    redis.call('ZCARD', dead_key(q)),
    redis.call('SISMEMBER', PAUSED, queue_name(q)),
    due > 0 and now - oldest or -1,
    next_minute,
    redis.call('ZCARD', suspects_key(q)),
    redis.call('ZCARD', parked_key(q)),
    falling_due,
  }
end
return answer
