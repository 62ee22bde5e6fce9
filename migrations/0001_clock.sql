-- The clock every deadline is measured by: Postgres time in whole milliseconds.
--
-- Deadlines are computed from the value read together with the row, so no worker's clock matters. Tests replace this
-- function to move time.
CREATE FUNCTION dispatchq_now() RETURNS timestamptz
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS $$ SELECT date_trunc('milliseconds', clock_timestamp()) $$;
