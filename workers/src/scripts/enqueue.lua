-- Inserts a batch of jobs, each due after a delay.
--
-- KEYS    as in lib.lua
-- ARGV    1 now, 2 wake channel, then per job: queue number from 1, id, delay in ms, envelope or ''
-- RETURNS one code per job: 1 inserted, 2 moved earlier, 3 kept (due earlier already), 4 leased: runs again, 5 dead
-- BOUND   the batch; the caller sends at most 500 jobs

local items = {}
for at = 3, #ARGV, 4 do
  items[#items + 1] = { tonumber(ARGV[at]), ARGV[at + 1], due_after(ARGV[at + 2]), ARGV[at + 3] }
end
return insert_all(items)
