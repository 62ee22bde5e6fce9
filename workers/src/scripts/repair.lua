-- Puts back what is missing, for the reconciler. Never removes, never disturbs what is on its way.
--
-- KEYS    as in lib.lua
-- ARGV    1 now, 2 wake channel, 3 tolerance in ms, then per job: queue number from 1, id, delay in ms, envelope or ''
-- RETURNS one code per job: 1 inserted, 2 moved earlier (lay more than the tolerance behind the wanted due), 3 fine, 5 dead
-- BOUND   the batch; the caller sends at most 500 jobs

local FINE = 3
local tolerance = tonumber(ARGV[3])
local wanted, at_item, codes = {}, {}, {}
for at = 4, #ARGV, 4 do
  local n = #codes + 1
  local q, id, due = tonumber(ARGV[at]), ARGV[at + 1], due_after(ARGV[at + 2])
  local lies_at = redis.call('ZSCORE', due_key(q), id)
  if redis.call('HEXISTS', LEASES, id) == 1 or (lies_at and tonumber(lies_at) <= due + tolerance) then
    codes[n] = FINE
  else
    codes[n] = 0
    wanted[#wanted + 1] = { q, id, due, ARGV[at + 3] }
    at_item[#wanted] = n
  end
end
local inserted = insert_all(wanted)
for i = 1, #wanted do codes[at_item[i]] = inserted[i] end
return codes
