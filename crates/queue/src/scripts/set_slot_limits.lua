-- Sets how many slots the shard and some groups have.
--
-- KEYS    as in lib.lua, no queue
-- ARGV    1 now, 2 wake channel, 3 slots of the shard, or '' to leave them, then per group: its name, its slots or '' for none
--         of its own
-- RETURNS nothing
-- BOUND   the batch, at most 500 groups; 500 slots handed over: a `take` hands over the rest
--
-- Limits that stand already cost a look each and write nothing, neither here nor in a replica or a file.
--
-- Slots in use beyond a lower limit stay until they end.

local slots = open_slots()
if ARGV[3] ~= '' then slots.set_limit('all', ARGV[3]) end
for at = 4, #ARGV, 2 do
  if slots.set_limit('group:' .. ARGV[at], ARGV[at + 1]) then slots.refresh_ring(ARGV[at]) end
end
slots.hand_out()
return 0
