-- Puts back what is missing, for the reconciler.
--
-- KEYS    as in lib.lua
-- ARGV    1 now, 2 wake channel, 3 tolerance in ms for jobs that were put off, then per job: queue number from 1, id,
--         delay in ms, envelope or ''
-- RETURNS one code per job: 1 inserted, 2 moved earlier (lay more than the tolerance behind the wanted due), 3 fine, 5 dead
-- BOUND   the batch; the caller sends at most 500 jobs

return repair_all(wanted_items())
