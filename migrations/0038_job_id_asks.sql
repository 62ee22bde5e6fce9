-- How often the partner was asked for a job id, over all bookings of an order: what events, alerts and logs call
-- total_attempts. poll_no begins again with each booking, and goes on once the job id is known.
ALTER TABLE orders ADD COLUMN job_id_asks integer NOT NULL DEFAULT 0 CHECK (job_id_asks >= 0);
COMMENT ON COLUMN orders.job_id_asks IS 'times the partner was asked for a job id, over all bookings; a version before 0038 does not count';

-- The job id of a former attempt is on its booking alone.
CREATE INDEX bookings_by_job_id ON bookings (job_id) WHERE job_id IS NOT NULL;
