-- What repair would do, without doing it.
--
-- KEYS    as in lib.lua
-- ARGV    as for repair; the envelopes are not looked at
-- RETURNS one code per job: 1 in no state, 2 lies more than the tolerance behind the wanted due, 3 fine, 5 dead
-- BOUND   the batch; the caller sends at most 500 jobs

local codes = {}
for at = 4, #ARGV, 4 do
  local q, id = tonumber(ARGV[at]), ARGV[at + 1]
  local _, is_fine, lies_at = place_of(q, id, tonumber(ARGV[at + 2]))
  if is_fine then
    codes[#codes + 1] = 3
  elseif redis.call('HEXISTS', DEAD, id) == 1 then
    codes[#codes + 1] = 5
  else
    codes[#codes + 1] = lies_at and 2 or 1
  end
end
return codes
