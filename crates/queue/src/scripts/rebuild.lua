-- Restores jobs of a rebuild as repair does, but only while the marker exists, and with due times by this server's
-- clock. An overdue job keeps its due time, so it stays below the horizon, however long the rebuild takes.
--
-- KEYS    as in lib.lua
-- ARGV    1 now, 2 wake channel, 3 tolerance in ms for jobs that were delayed on purpose, 4 the marker set at the start
--         of the rebuild, then per job: queue number from 1, id, due time in ms, envelope or ''
-- RETURNS one code per job, as repair does; an empty list if the marker no longer exists: rebuild again
-- BOUND   the batch; the caller sends at most 500 jobs

if read_rebuild() ~= ARGV[4] then return {} end
local items = {}
for at = 5, #ARGV, 4 do
  local due = tonumber(ARGV[at + 2])
  items[#items + 1] = { tonumber(ARGV[at]), ARGV[at + 1], due, ARGV[at + 3], is_due = due <= now }
end
return repair_all(items)
