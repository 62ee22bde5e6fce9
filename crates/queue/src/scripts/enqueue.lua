-- Cancels superseded jobs, then inserts a batch of jobs, each due after a delay.
--
-- KEYS    as in lib.lua
-- ARGV    1 now, 2 wake channel, 3 number of superseded jobs, then per superseded job: queue number from 1, id; then
--         per job: queue number, id, delay in ms, envelope or ''
-- RETURNS one code per job: 1 inserted, 2 moved earlier, 3 kept (due earlier already), 4 leased: runs again, 5 dead
-- BOUND   the batch; the caller sends at most 500 jobs of both kinds; 500 slots handed over

local first = 4 + 2 * tonumber(ARGV[3])

local superseded = {}
for at = 4, first - 1, 2 do superseded[#superseded + 1] = { tonumber(ARGV[at]), ARGV[at + 1] } end
cancel_all(superseded)

local items = {}
for at = first, #ARGV, 4 do
  items[#items + 1] = { tonumber(ARGV[at]), ARGV[at + 1], due_after(ARGV[at + 2]), ARGV[at + 3] }
end
return insert_all(items)
