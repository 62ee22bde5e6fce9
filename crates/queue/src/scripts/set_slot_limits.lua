-- Sets the number of slots of the shard and of some groups.
--
-- KEYS    as in lib.lua, no queue
-- ARGV    1 now, 2 wake channel, 3 slots of the shard, or '' to keep the number, then per group: its name, its slots or
--         '' for no limit of its own
-- RETURNS nothing
-- BOUND   the batch, at most 500 groups; 500 slots handed over: a `take` hands over the rest
--
-- An unchanged limit costs one read. It writes nothing, neither here nor in a replica or a file.
--
-- Slots in use above a lowered limit stay until they end.

local slots = open_slots()
if ARGV[3] ~= '' then slots.set_limit('all', ARGV[3]) end
for at = 4, #ARGV, 2 do
  if slots.set_limit('group:' .. ARGV[at], ARGV[at + 1]) then slots.refresh_ring(ARGV[at]) end
end
slots.hand_out()
return 0
