-- Restores the dead jobs of a queue that has lost them, with their old records. Never changes a job that is due, parked
-- or leased.
--
-- KEYS    as in lib.lua, the one queue
-- ARGV    1 now, 2 wake channel (unused), then per job: id, time of death, due, failed, lost, error, envelope or ''
-- RETURNS one code per job: 1 restored, 2 alive (due, parked or leased), 3 dead already; only 1 changes anything
-- BOUND   the batch; the caller sends at most 500 jobs

local RESTORED, LIVES, DEAD_ALREADY = 1, 2, 3
local codes = {}
for at = 3, #ARGV, 7 do
  local id, died = ARGV[at], tonumber(ARGV[at + 1])
  local _, place = place_of(id)
  if place == IS_ABSENT then
    codes[#codes + 1] = RESTORED
    local envelope = ARGV[at + 6] ~= '' and ARGV[at + 6] or nil
    redis.call('ZADD', dead_key(1), died, id)
    redis.call('HSET', DEAD, id,
      dead_record(1, ARGV[at + 5], ARGV[at + 3], ARGV[at + 4], tonumber(ARGV[at + 2]), died, envelope))
  else
    codes[#codes + 1] = place == IS_DEAD and DEAD_ALREADY or LIVES
  end
end
return codes
