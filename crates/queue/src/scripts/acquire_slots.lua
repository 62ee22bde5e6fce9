-- Grants a job the slots that it needs, all of them or none.
--
-- KEYS    as in lib.lua, the job's queue
-- ARGV    1 now, 2 wake channel, 3 id, 4 holder, 5 group, 6 own name, 7 duration in ms, 8 the holder whose slots the
--         job gives up for these, or ''
-- RETURNS 1 granted, 2 busy: nothing is granted, 3 closed: there is no epoch, or this server restarted since it was
--         written
-- BOUND   100 slots ended, 500 handed over
--
-- A job never passes the jobs in its group's line, even with the slots that it gives up. The same holder may ask twice,
-- in case an answer is lost.

local GRANTED, BUSY, CLOSED = 1, 2, 3
local id, holder = ARGV[3], ARGV[4]
local slots = open_slots()
local held = slots.find_hold(id)
if held and held.last == ARGV[8] then slots.free(id, held) end
if not slots.may_hand_out() then return CLOSED end
if any_slots() then slots.hand_out(slots.end_expired()) end

held = slots.find_hold(id)
if held and held.last == holder then return GRANTED end
local need = slots.new_need(queue_name(1), ARGV[5], ARGV[6], ARGV[7])
-- If the job is parked, the caller is a worker that lost its lease.
if held or slots.find_parked(id) or not slots.is_free_for(id, need) then return BUSY end
slots.hold(id, need, holder, now_up + need.hold)
return GRANTED
