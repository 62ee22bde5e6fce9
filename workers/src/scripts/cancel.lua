-- Removes one job that is due, now or later.
--
-- KEYS    as in lib.lua, the queues to look in
-- ARGV    1 now, 2 wake channel (unused), 3 id
-- RETURNS 1 removed, 2 leased, 3 dead, 4 absent; but for 1 nothing changes
-- BOUND   constant per queue

local REMOVED = 1
local _, place, key = place_of(ARGV[3])
if place ~= IS_DUE then return place end
redis.call('ZREM', key, ARGV[3])
redis.call('HDEL', JOBS, ARGV[3])
redis.call('HDEL', TRIES, ARGV[3])
return REMOVED
