-- The clock for all deadlines, and the ids of advisory locks.

-- Returns the time of Postgres in whole milliseconds. Programs read it together with the row and compute deadlines from it, so the
-- clocks of workers do not matter. Tests replace this function to move time.
CREATE FUNCTION dispatchq_now() RETURNS timestamptz
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS $$ SELECT date_trunc('milliseconds', clock_timestamp()) $$;

-- Returns the id of an advisory lock of this installation. Postgres shares these locks in the whole database, so the schema is
-- part of the id: two installations in two schemas neither wait for each other nor skip work. In the schema `public` the id is
-- the number itself.
CREATE FUNCTION dispatchq_lock(lock bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT CASE n.nspname WHEN 'public' THEN lock ELSE lock # hashtextextended(n.nspname, 0) END
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('orders')
$$;
-- Returns the first id of an advisory lock that has two ids, in the same way.
CREATE FUNCTION dispatchq_lock(lock integer) RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT CASE n.nspname WHEN 'public' THEN lock ELSE lock # hashtext(n.nspname) END
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('orders')
$$;
