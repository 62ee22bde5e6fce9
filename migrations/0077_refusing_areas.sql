-- Why an area refused orders when it was looked at: DISABLED, FORCED, THRESHOLD or COOLING; '': it refused none. A version that does not
-- know this column writes null.
ALTER TABLE waiting_snapshots ADD COLUMN refuses text CHECK (refuses IN ('', 'DISABLED', 'FORCED', 'THRESHOLD', 'COOLING'));
