-- Counts the slots of running work after Redis lost them. A rebuild calls it. Limits do not apply.
--
-- KEYS    as in lib.lua, the queues of the jobs
-- ARGV    1 now, 2 wake channel, then per job: queue number from 1, id, group, own name, remaining time of the slots in
--         ms
-- RETURNS one code per job: 1 restored, 2 held already, at least as long
-- BOUND   the batch; the caller sends at most 500 jobs
--
-- No holder frees these slots; they end by time.

local RESTORED, HELD = 1, 2
local slots, codes = open_slots(), {}
for at = 3, #ARGV, 5 do
  local id, ends = ARGV[at + 1], now_up + tonumber(ARGV[at + 4])
  local held = slots.find_hold(id)
  if held then
    slots.extend_hold(id, held, ends)
    codes[#codes + 1] = HELD
  else
    slots.hold(id, slots.new_need(queue_name(tonumber(ARGV[at])), ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]), 'restored', ends)
    codes[#codes + 1] = RESTORED
  end
end
return codes
