-- Frees the slots of jobs whose work has ended, and hands them over.
--
-- KEYS    as in lib.lua, no queue
-- ARGV    1 now, 2 wake channel, then per job: id, holder
-- RETURNS one code per job: 1 freed, 2 not held by this holder: nothing changes
-- BOUND   the batch, at most 500 jobs; 500 slots handed over: a `take` hands over the rest

local FREED, NOT_HELD = 1, 2
local slots, codes = open_slots(), {}
for at = 3, #ARGV, 2 do
  codes[#codes + 1] = slots.free_held(ARGV[at], ARGV[at + 1]) and FREED or NOT_HELD
end
slots.hand_out()
return codes
