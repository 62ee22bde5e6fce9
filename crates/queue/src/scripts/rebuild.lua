-- Puts back jobs of a rebuild, as repair does, but each due at a time of this server's clock, and only while the marker stands. What
-- is overdue keeps its time: it lies below the horizon, however long the rebuild takes.
--
-- KEYS    as in lib.lua
-- ARGV    1 now, 2 wake channel, 3 tolerance in ms for jobs that were put off, 4 the marker set when the rebuild began, then per job:
--         queue number from 1, id, due in ms, envelope or ''
-- RETURNS one code per job, as repair does; nothing at all if the marker no longer stands: rebuild again
-- BOUND   the batch; the caller sends at most 500 jobs

if read_rebuild() ~= ARGV[4] then return {} end
local items = {}
for at = 5, #ARGV, 4 do
  local due = tonumber(ARGV[at + 2])
  items[#items + 1] = { tonumber(ARGV[at]), ARGV[at + 1], due, ARGV[at + 3], is_due = due <= now }
end
return repair_all(items)
