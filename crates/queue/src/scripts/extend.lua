-- Renews a batch of leases.
--
-- KEYS    as in lib.lua, the queues of the jobs
-- ARGV    1 now, 2 wake channel, 3 lease in ms, then per job: queue number from 1, id, token
-- RETURNS one code per job: 1 extended, 2 lost: the token is not that of the current lease
-- BOUND   the batch; the caller sends at most 500 jobs

local EXTENDED, LOST = 1, 2
local until_ms = whole(now + tonumber(ARGV[3]))
local ids = {}
for at = 4, #ARGV, 3 do ids[#ids + 1] = ARGV[at + 1] end
local leases = hash_values(LEASES, ids)
local codes, extended = {}, {}
for i = 1, #ids do
  local at = 3 * i + 1
  if leases[i] and is_lease_of(leases[i], ARGV[at + 2]) then
    codes[i] = EXTENDED
    append(extended, tonumber(ARGV[at]), until_ms, ids[i])
  else
    codes[i] = LOST
  end
end
for q, list in pairs(extended) do in_chunks('ZADD', leased_key(q), list) end
return codes
