-- Hands a batch of leased jobs back as if they had never been taken. So a drain spends no try.
--
-- KEYS    as in lib.lua, the queues of the jobs
-- ARGV    1 now, 2 wake channel, then per job: queue number from 1, id, token
-- RETURNS one code per job: 1 released, 2 lost: the token is not that of the current lease
-- BOUND   the batch; the caller sends at most 500 jobs

local RELEASED, LOST = 1, 2
local ids = {}
for at = 3, #ARGV, 3 do ids[#ids + 1] = ARGV[at + 1] end
local leases = hash_values(LEASES, ids)
local codes, unlease, requeue, ended = {}, {}, {}, {}
for i = 1, #ids do
  local at = 3 * i
  local q = tonumber(ARGV[at])
  local token, due, again
  if leases[i] then token, due, again = parse_lease(leases[i]) end
  if token == ARGV[at + 2] then
    codes[i] = RELEASED
    append(unlease, q, ids[i])
    append(requeue, q, math.min(earlier(due, again), now), ids[i])
    ended[#ended + 1] = ids[i]
  else
    codes[i] = LOST
  end
end
in_chunks('HDEL', LEASES, ended)
for q, list in pairs(unlease) do in_chunks('ZREM', leased_key(q), list) end
requeue_all(requeue)
return codes
