-- Creates the roles of an installation and grants each role only the rights that it needs. Run this file as a superuser
-- (or as a role with CREATEROLE that owns the database) in the database of dispatchq, before the first `dispatchq
-- migrate` and again after each:
--
--   psql -v ON_ERROR_STOP=1 -f deploy/postgres/roles.sql dispatchq
--
-- Then set a password for each role that logs in: ALTER ROLE dispatchq_run PASSWORD '...'. After an upgrade, run it
-- only when every process has the new version: it may revoke rights that the previous version still uses.
--
--   dispatchq_migrate      owns the schema                    dispatchq migrate
--   dispatchq_maintenance  owns the history                   database.maintenance_url of workers; migrate --partitions
--   dispatchq_run          reads and writes rows              database.url of serve, work and the commands of operators
--   dispatchq_producer     calls dispatchq_create_order()     services that create orders in their own transaction
--   dispatchq_auditor      reads the audit_ views             analysts, auditors, dispatchq export
--   dispatchq_scoped       reads the orders of a scope        dispatchq_run, for staff with a scope; cannot log in
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['dispatchq_migrate', 'dispatchq_maintenance', 'dispatchq_run', 'dispatchq_producer',
                                'dispatchq_auditor']
    LOOP
        IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = name) THEN
            EXECUTE format('CREATE ROLE %I LOGIN', name);
        END IF;
    END LOOP;
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'dispatchq_scoped') THEN
        CREATE ROLE dispatchq_scoped NOLOGIN;
    END IF;
END $$;

-- dispatchq_run becomes dispatchq_scoped only with SET ROLE. It does not inherit from it: the policies of dispatchq_scoped would
-- apply to it too. Before Postgres 16 inheritance is a property of the member.
DO $$
BEGIN
    IF current_setting('server_version_num')::integer >= 160000 THEN
        EXECUTE 'GRANT dispatchq_scoped TO dispatchq_run WITH INHERIT FALSE, SET TRUE';
    ELSE
        ALTER ROLE dispatchq_run NOINHERIT;
        GRANT dispatchq_scoped TO dispatchq_run;
    END IF;
END $$;

-- dispatchq_migrate may also change the history and add daily partitions that dispatchq_maintenance can drop.
GRANT dispatchq_maintenance TO dispatchq_migrate;

REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO dispatchq_migrate, dispatchq_maintenance;
GRANT USAGE ON SCHEMA public TO dispatchq_run, dispatchq_producer, dispatchq_auditor, dispatchq_scoped;

-- Rights on objects that later migrations create.
ALTER DEFAULT PRIVILEGES FOR ROLE dispatchq_migrate IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO dispatchq_run;
ALTER DEFAULT PRIVILEGES FOR ROLE dispatchq_migrate IN SCHEMA public GRANT USAGE ON SEQUENCES TO dispatchq_run;

-- Rights on existing objects. If one role owned everything until now, first transfer its objects to dispatchq_migrate:
--   REASSIGN OWNED BY the_old_role TO dispatchq_migrate;
DO $$
DECLARE
    name text;
BEGIN
    IF to_regclass('public.order_events') IS NULL THEN
        RETURN;  -- not migrated yet
    END IF;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO dispatchq_run;
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO dispatchq_run;
    REVOKE INSERT, UPDATE, DELETE ON _sqlx_migrations FROM dispatchq_run;
    -- Only the owner of the history may change or delete its rows.
    REVOKE UPDATE, DELETE ON order_events FROM dispatchq_run;
    REVOKE INSERT, UPDATE ON order_events_kept FROM dispatchq_run;
    -- Calls to providers and the history of bindings are append-only as well. Cleanup deletes old rows.
    REVOKE UPDATE ON transaction_snapshots, binding_events FROM dispatchq_run;
    FOR name IN SELECT inhrelid::regclass::text FROM pg_inherits
        WHERE inhparent IN ('transactions'::regclass, 'transaction_snapshots'::regclass)
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM dispatchq_run', name);
    END LOOP;
    -- Records of staff, erasures and deliveries are append-only. Functions delete old records.
    REVOKE UPDATE, DELETE ON staff_actions, staff_requests, admission_audit, erasures, outbox_attempts, outbox_replays
        FROM dispatchq_run;
    -- Only the owner of the schema decides for which producers a login may create orders.
    REVOKE INSERT, UPDATE, DELETE ON sql_producers FROM dispatchq_run;
    ALTER TABLE order_events OWNER TO dispatchq_maintenance;
    GRANT SELECT, INSERT ON order_events TO dispatchq_run;
    FOR name IN SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'order_events'::regclass LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO dispatchq_maintenance', name);
        EXECUTE format('REVOKE ALL ON %s FROM dispatchq_run', name);
    END LOOP;
    GRANT USAGE ON SEQUENCE order_events_seq TO dispatchq_maintenance;
    PERFORM dispatchq_add_scope_policies();
    GRANT SELECT ON orders TO dispatchq_maintenance;
    GRANT SELECT, INSERT ON order_events_kept TO dispatchq_maintenance;
    FOR name IN SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'dispatchq_create_order' LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO dispatchq_run, dispatchq_producer', name);
    END LOOP;
    FOR name IN
        SELECT oid::regprocedure::text FROM pg_proc
        WHERE proname IN ('dispatchq_erase_order', 'dispatchq_erase_driver_orders', 'dispatchq_remove_old_records',
                          'dispatchq_end_attempt', 'dispatchq_note_erasure', 'dispatchq_redact_staff_actions')
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO dispatchq_run', name);
    END LOOP;
    FOR name IN SELECT viewname FROM pg_views WHERE schemaname = 'public' AND viewname LIKE 'audit\_%' LOOP
        EXECUTE format('GRANT SELECT ON %I TO dispatchq_auditor', name);
    END LOOP;
END $$;
