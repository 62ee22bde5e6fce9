-- The clock of every deadline, and the ids of advisory locks.

-- Returns the time of Postgres in whole milliseconds. Deadlines are computed from the value read together with the row, so no
-- worker's clock matters. Tests replace this function to move time.
CREATE FUNCTION dispatchq_now() RETURNS timestamptz
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS $$ SELECT date_trunc('milliseconds', clock_timestamp()) $$;

-- Returns the id of an advisory lock of this installation. Locks are shared by a whole database, so the schema is part of the id:
-- two installations in two schemas neither wait for each other nor skip each other's rounds. In the schema `public` the id is the
-- number itself.
CREATE FUNCTION dispatchq_lock(lock bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT CASE n.nspname WHEN 'public' THEN lock ELSE lock # hashtextextended(n.nspname, 0) END
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('orders')
$$;
-- Does the same for the first half of a lock that has two halves.
CREATE FUNCTION dispatchq_lock(lock integer) RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT CASE n.nspname WHEN 'public' THEN lock ELSE lock # hashtext(n.nspname) END
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('orders')
$$;
