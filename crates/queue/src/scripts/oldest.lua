-- Reads the oldest due job of each queue. Suspects are ignored, because they wait until they may run alone.
--
-- KEYS    as in lib.lua, the requested queues
-- ARGV    1 now, 2 wake channel (unused)
-- RETURNS per queue: {job id or '' if none is due, its age in ms, 1 if a job of the queue has a lease that has not ended}
-- BOUND   constant per queue

local answer = {}
for q = 1, QUEUES do
  local head = redis.call('ZRANGE', due_key(q), 0, 0, 'WITHSCORES')
  local age = head[2] and now - tonumber(head[2]) or -1
  local last = redis.call('ZRANGE', leased_key(q), -1, -1, 'WITHSCORES')
  answer[q] = { age >= 0 and head[1] or '', math.max(age, 0), last[2] and tonumber(last[2]) > now and 1 or 0 }
end
return answer
