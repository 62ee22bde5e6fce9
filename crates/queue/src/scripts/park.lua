-- Parks absent jobs in this order, in the lines for their slots. A rebuild restores parked jobs with it.
--
-- KEYS    as in lib.lua, the queues of the jobs
-- ARGV    1 now, 2 wake channel, then per job: queue number from 1, id, envelope or '', group, own name, duration of
--         the slots in ms
-- RETURNS one code per job: 1 parked, 2 due, leased or dead; 3 parked already; only 1 changes anything
-- BOUND   the batch, at most 500 jobs; 500 slots handed over, none without the epoch

local IS_PARKED_NOW, LIES_ELSEWHERE, WAS_PARKED = 1, 2, 3
local slots, codes = open_slots(), {}
for at = 3, #ARGV, 6 do
  local q, id = tonumber(ARGV[at]), ARGV[at + 1]
  local _, place = place_of(id)
  if place == IS_ABSENT then
    if ARGV[at + 2] ~= '' then redis.call('HSET', JOBS, id, ARGV[at + 2]) end
    slots.park(id, slots.new_need(queue_name(q), ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]))
    codes[#codes + 1] = IS_PARKED_NOW
  else
    codes[#codes + 1] = place == IS_PARKED and WAS_PARKED or LIES_ELSEWHERE
  end
end
slots.hand_out()
return codes
