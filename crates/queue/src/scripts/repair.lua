-- Inserts missing jobs and moves late jobs earlier, for the reconciler.
--
-- KEYS    as in lib.lua
-- ARGV    1 now, 2 wake channel, 3 tolerance in ms for jobs that were delayed on purpose, then per job: queue number
--         from 1, id, delay in ms, envelope or ''
-- RETURNS one code per job: 1 inserted, 2 moved earlier (it was due more than the tolerance after the wanted time), 3
--         fine, 5 dead
-- BOUND   the batch; the caller sends at most 500 jobs

return repair_all(wanted_items())
