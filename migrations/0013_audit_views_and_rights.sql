-- Views for analysts, auditors and `check history`, and rights on functions.
--
-- The columns of the audit_ views are stable: add new columns at the end, or add views.

CREATE VIEW audit_orders AS
    SELECT id AS order_id, service_type, area_id, status, payment_status, driver_id, held_for_review,
           created_at, lifetime_deadline, closed_at, paid_at,
           pickup_at, starts_at
    FROM orders;

CREATE VIEW audit_events AS
    SELECT seq, order_id, from_status, to_status, reason, actor, attempt_no, at FROM order_events
    UNION ALL
    SELECT seq, order_id, from_status, to_status, reason, actor, attempt_no, at FROM order_events_kept;

CREATE VIEW audit_event_keys AS
    SELECT seq, order_id, at, actor, key_id FROM order_events WHERE key_id IS NOT NULL
    UNION ALL
    SELECT seq, order_id, at, actor, key_id FROM order_events_kept WHERE key_id IS NOT NULL;

CREATE VIEW audit_offers AS
    SELECT id AS offer_id, order_id, attempt_no, driver_id, state, offered_at, expires_at, responded_at, wave
    FROM offers;

CREATE VIEW audit_bookings AS
    SELECT order_id, attempt_no, booking_id, job_id, state, created_at, closed_at, partner
    FROM bookings;

CREATE VIEW audit_admissions AS
    SELECT hour, area_id, service_type, source, verdict, cause, loyalty, waiting, requests FROM admission_counts;

CREATE VIEW audit_shadow_refusals AS
    SELECT id, at, source, order_id, area_id, service_type, waiting, threshold, channel, loyalty_level FROM shadow_refusals;

-- The supply log contains no ids.
CREATE VIEW audit_supply AS
    SELECT minute, service_type, area_id, cell, free, busy, off_duty,
           made_500m, made_1km, made_3km, made_far,
           accepted_500m, accepted_1km, accepted_3km, accepted_far,
           declined_500m, declined_1km, declined_3km, declined_far,
           unanswered_500m, unanswered_1km, unanswered_3km, unanswered_far,
           counted_at
    FROM supply_counts JOIN supply_minutes USING (minute);

-- Only messages about orders.
CREATE VIEW audit_notifications AS
    SELECT id, order_id, kind, channel, state, attempts, created_at, delivered_at
    FROM outbox WHERE binding_id IS NULL;

CREATE VIEW audit_binding_notifications AS
    SELECT id, binding_id, kind, channel, state, attempts, created_at, delivered_at
    FROM outbox WHERE binding_id IS NOT NULL;

-- The views of bindings contain neither requests to providers nor their answers.
CREATE VIEW audit_bindings AS
    SELECT b.id AS binding_id, b.server_id, b.account_id, b.state, b.reason, b.phase, b.cycle, b.call_no, b.call_action,
           b.unresolved, b.otp_value IS NOT NULL AS otp_stored,
           coalesce((b.config->>'otp_attempts')::integer, 3) AS otp_attempts, b.created_at, b.deleted_at,
           coalesce(w.removed_through, 0) AS removed_through, coalesce(w.calls_removed, 0) AS calls_removed
    FROM bindings b LEFT JOIN binding_watermarks w ON w.binding_id = b.id;

CREATE VIEW audit_transactions AS
    SELECT trx_id, binding_id, cycle, server_id, account_id, status, reason, provider_ref, started_at, ended_at
    FROM transactions;

-- A call has one row for its claim and one for its end.
CREATE VIEW audit_provider_calls AS
    SELECT binding_id, cycle, call_no, part, at, action, fence, call_until, result, http_status, sent_at, latency_us
    FROM transaction_snapshots;

CREATE VIEW audit_binding_events AS
    SELECT seq, binding_id, at, kind, reason, actor, key_id, cycle
    FROM binding_events;

CREATE VIEW audit_plans AS
    SELECT id AS plan_id, kind, action, filter, state, total, changed, unchanged, refused, created_by, created_key, created_at,
           run_by, run_key, started_at, cancelled_by, cancelled_key, ended_at
    FROM plans;

CREATE VIEW audit_staff_actions AS
    SELECT id, at, actor, key_id, action, subject, reason, old_value, new_value FROM staff_actions;

CREATE VIEW audit_staff_requests AS
    SELECT id, at, key_id, host(address) AS address, request FROM staff_requests;

-- Violations that the continuous proof found.
CREATE VIEW audit_proof_violations AS
    SELECT id, invariant, subject, detail, order_id, event_seq, event, step, found_at, seen_at, gone_at
    FROM proof_violations;

-- Reads of staff with a scope. Such a transaction starts with SET LOCAL ROLE dispatchq_scoped and SET LOCAL dispatchq.scope, so it
-- also works behind a pooler. Policies limit this role to the orders of the scope. For other roles the policies are `true`, which the
-- planner removes: their plans do not change.

-- Returns a list of the scope; null: the scope has no such list. Fails if the transaction has no scope, so that nothing is shown.
-- The setting is JSON in hexadecimal digits.
CREATE FUNCTION dispatchq_scope(list text) RETURNS text[] LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN s.scope ? list THEN ARRAY(SELECT jsonb_array_elements_text(s.scope -> list)) END
    FROM (SELECT convert_from(decode(current_setting('dispatchq.scope'), 'hex'), 'UTF8')::jsonb AS scope) s
$$;

-- Adds the policies of the scope and the rights of the role dispatchq_scoped. Without the role it does nothing, and no key can
-- get a scope. deploy/postgres/roles.sql creates the role and calls this function again.
CREATE FUNCTION dispatchq_add_scope_policies() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name text;
BEGIN
    IF to_regrole('dispatchq_scoped') IS NULL
        OR EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = 'orders'::regclass AND polname = 'orders_in_scope') THEN
        RETURN;
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO dispatchq_scoped', current_schema());
    CREATE POLICY orders_in_scope ON orders AS RESTRICTIVE FOR SELECT TO dispatchq_scoped USING (
        -- A login that inherits from the role, against the rule in deploy/postgres/roles.sql, is not limited.
        (SELECT current_user <> 'dispatchq_scoped')
        OR (((SELECT dispatchq_scope('areas')) IS NULL OR area_id = ANY ((SELECT dispatchq_scope('areas'))::text[]))
        AND ((SELECT dispatchq_scope('service_types')) IS NULL
             OR service_type = ANY ((SELECT dispatchq_scope('service_types'))::text[]))
        AND ((SELECT dispatchq_scope('partners')) IS NULL OR partner = ANY ((SELECT dispatchq_scope('partners'))::text[]))
        AND ((SELECT dispatchq_scope('producers')) IS NULL OR owner = ANY ((SELECT dispatchq_scope('producers'))::text[]))));
    -- Rows that belong to an order.
    FOREACH name IN ARRAY ARRAY['order_details', 'offers', 'rankings', 'order_events', 'order_events_kept', 'bookings', 'inbox',
                                'payment_events', 'refunds', 'outbox', 'alerts', 'desk_takes']
    LOOP
        EXECUTE format('CREATE POLICY orders_in_scope ON %I AS RESTRICTIVE FOR SELECT TO dispatchq_scoped
                        USING ((SELECT current_user <> ''dispatchq_scoped'') OR EXISTS (SELECT 1 FROM orders o WHERE o.id = order_id))', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['orders', 'order_details', 'offers', 'rankings', 'order_events', 'order_events_kept', 'bookings',
                                'inbox', 'payment_events', 'refunds', 'outbox', 'alerts', 'desk_takes']
    LOOP
        EXECUTE format('CREATE POLICY everyone ON %I USING (true)', name);
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('GRANT SELECT ON %I TO dispatchq_scoped', name);
    END LOOP;
    -- Tables that name no order.
    GRANT SELECT ON areas, admission_audit, service_types, partner_settings, saved_filters TO dispatchq_scoped;
    GRANT SELECT (id, name, service_types, skills, lat, lng, located_at, available, idle_since, disabled_at) ON drivers
        TO dispatchq_scoped;
END $$;

-- Creates the role if this login may create roles. It cannot log in and has no password.
DO $$
BEGIN
    BEGIN
        CREATE ROLE dispatchq_scoped NOLOGIN;
    EXCEPTION WHEN insufficient_privilege OR duplicate_object OR unique_violation THEN
        NULL;
    END;
    BEGIN
        GRANT dispatchq_scoped TO CURRENT_USER;
    EXCEPTION WHEN insufficient_privilege OR undefined_object OR unique_violation THEN
        NULL;
    END;
    PERFORM dispatchq_add_scope_policies();
END $$;

-- Functions with SECURITY DEFINER run with the rights of their owner. So a producer in SQL needs only EXECUTE on one function,
-- and programs need no right to change the history. The functions resolve names only in this schema, whatever the caller's
-- search_path is. PUBLIC may not call them. A login that has INSERT on `orders` by default privileges may call all of them;
-- deploy/postgres/roles.sql grants the other rights.
DO $$
DECLARE
    function regprocedure;
    grantee text;
BEGIN
    FOR function IN
        SELECT p.oid::regprocedure FROM pg_proc p
        WHERE p.prosecdef AND p.proname LIKE 'dispatchq\_%' AND p.pronamespace = current_schema()::regnamespace
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', function, current_schema());
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', function);
        FOR grantee IN
            SELECT DISTINCT pg_get_userbyid(a.grantee) FROM pg_class c, aclexplode(c.relacl) a
            WHERE c.oid = 'orders'::regclass AND a.privilege_type = 'INSERT' AND a.grantee NOT IN (0, c.relowner)
        LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', function, grantee);
        END LOOP;
    END LOOP;
END $$;
