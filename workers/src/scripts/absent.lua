-- Which of these jobs are in none of their queue's lists.
--
-- KEYS    as in lib.lua
-- ARGV    1 now, 2 wake channel (unused), then per job: queue number from 1, id
-- RETURNS one code per job: 1 absent, 0 due, suspect, leased or dead
-- BOUND   the batch; the caller sends at most 500 jobs

local codes = {}
for at = 3, #ARGV, 2 do
  local q, id = tonumber(ARGV[at]), ARGV[at + 1]
  local known = redis.call('HEXISTS', LEASES, id) == 1
    or redis.call('ZSCORE', due_key(q), id)
    or redis.call('ZSCORE', suspects_key(q), id)
    or redis.call('ZSCORE', dead_key(q), id)
  codes[#codes + 1] = known and 0 or 1
end
return codes
