-- Returns jobs that hold slots or have them reserved, those whose slots end first.
--
-- KEYS    as in lib.lua, no queue
-- ARGV    1 now, 2 wake channel (unused), 3 first rank, 4 maximum number
-- RETURNS per job: {id, end in ms, group, own name, 1 if reserved}
-- BOUND   the page; at most 1,000 jobs

local slots, answer = open_slots(), {}
local from, many = tonumber(ARGV[3]), math.min(tonumber(ARGV[4]), 1000)
if many == 0 then return answer end
local reply = redis.call('ZRANGE', slot_key('slot_ends'), from, from + many - 1, 'WITHSCORES')
for i = 1, #reply, 2 do
  local need = slots.find_hold(reply[i])
  answer[#answer + 1] = { reply[i], reply[i + 1], need.group, need.own, need.last == RESERVED and 1 or 0 }
end
return answer
