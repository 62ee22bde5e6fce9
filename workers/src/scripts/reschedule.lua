-- Gives one job that is due another due, earlier or later.
--
-- KEYS    as in lib.lua, the queues to look in
-- ARGV    1 now, 2 wake channel, 3 id, 4 delay in ms
-- RETURNS 1 moved, 2 leased, 3 dead, 4 absent; but for 1 nothing changes
-- BOUND   constant per queue

local MOVED = 1
local q, place = place_of(ARGV[3])
if place ~= IS_DUE then return place end
local head_before, due = head_due(q), due_after(ARGV[4])
redis.call('ZADD', due_key(q), 'XX', due, ARGV[3])
wake_if_new_head(q, due, head_before)
return MOVED
