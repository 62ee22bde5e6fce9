-- Puts back what is missing, for the reconciler. Never removes, never disturbs what is on its way.
--
-- KEYS    as in lib.lua
-- ARGV    1 now, 2 wake channel, 3 tolerance in ms for jobs that were put off, then per job: queue number from 1, id,
--         delay in ms, envelope or ''
-- RETURNS one code per job: 1 inserted, 2 moved earlier (lay more than the tolerance behind the wanted due), 3 fine, 5 dead
-- BOUND   the batch; the caller sends at most 500 jobs

local FINE = 3

local wanted, at_item, codes = {}, {}, {}
for at = 4, #ARGV, 4 do
  local n = #codes + 1
  local q, id = tonumber(ARGV[at]), ARGV[at + 1]
  local due, is_fine = place_of(q, id, tonumber(ARGV[at + 2]))
  if is_fine then
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
