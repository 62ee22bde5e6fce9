-- Removes one waiting job: due now or later, or parked. Slots reserved for it go to the next in line.
--
-- KEYS    as in lib.lua, the queues to search
-- ARGV    1 now, 2 wake channel, 3 id
-- RETURNS 1 removed, 2 leased, 3 dead, 4 absent; only 1 changes anything
-- BOUND   constant per queue; one slot handed over

local REMOVED = 1
local _, place, key = place_of(ARGV[3])
if place == IS_PARKED then
  local slots = open_slots()
  slots.leave_line(ARGV[3])
  slots.hand_out()
elseif place == IS_DUE then
  redis.call('ZREM', key, ARGV[3])
  if any_slots() then open_slots().drop_reservation(ARGV[3]) end
else
  return place
end
redis.call('HDEL', JOBS, ARGV[3])
redis.call('HDEL', TRIES, ARGV[3])
return REMOVED
