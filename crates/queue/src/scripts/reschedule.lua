-- Gives one due job another due time, earlier or later.
--
-- KEYS    as in lib.lua, the queues to search
-- ARGV    1 now, 2 wake channel, 3 id, 4 delay in ms
-- RETURNS 1 moved, 2 leased, 3 dead, 4 absent, 5 parked; only 1 changes anything
-- BOUND   constant per queue; one slot handed over
--
-- Slots reserved for a job that is delayed go to the next in line.

local MOVED = 1
local id, delay_ms = ARGV[3], tonumber(ARGV[4])
local q, place, key = place_of(id)
if place ~= IS_DUE then return place end
local head_before, due = head_due(q), due_after(delay_ms)
redis.call('ZADD', key, 'XX', due, id)
if delay_ms > 0 then redis.call('HSETNX', TRIES, id, PUT_OFF) end
if delay_ms > 0 and any_slots() then open_slots().drop_reservation(id) end
wake_if_new_head(q, due, key == due_key(q) and head_before or math.huge)
return MOVED
