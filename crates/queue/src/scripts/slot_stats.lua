-- Counts slots and the jobs that wait for them.
--
-- KEYS    as in lib.lua, no queue
-- ARGV    1 now, 2 wake channel (unused), then the requested groups
-- RETURNS {now, {limit, in use, parked jobs} of the shard, per group {limit, in use, jobs in line, start of the first
--         one's wait in ms or -1}}
-- BOUND   the groups; the caller sends at most 500

local slots = open_slots()
local answer = { now, slots.count_shard() }
for at = 3, #ARGV do answer[#answer + 1] = slots.count_group(ARGV[at]) end
return answer
