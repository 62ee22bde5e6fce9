-- Frees the slots of jobs whose work has ended, and hands them over.
--
-- KEYS    as in lib.lua, no queue
-- ARGV    1 now, 2 wake channel, then per job: id, holder, the job ahead that its slot of the shard is passed on to and
--         the holder of that one, or '' and ''
-- RETURNS one code per job: 1 freed, 2 not held by this holder: nothing changes
-- BOUND   the batch, at most 500 jobs; 500 slots handed over: a `take` hands over the rest

local FREED, NOT_HELD = 1, 2
local slots, codes = open_slots(), {}
for at = 3, #ARGV, 4 do
  local is_freed = slots.release(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
  codes[#codes + 1] = is_freed and FREED or NOT_HELD
end
slots.hand_out()
return codes
