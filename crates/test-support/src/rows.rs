//! Rows for tests of query plans. The tables are large enough that the planner chooses an index.

/// Rows of each table. For a few percent of them, the retention time is over.
pub const FILL: &str = "
    SET session_replication_role = replica;
    CREATE TEMP TABLE n AS SELECT n, 'O' || lpad(n::text, 6, '0') AS id, dispatchq_now() - n * interval '30 minutes' AS at
        FROM generate_series(1, 20000) n;
    INSERT INTO orders (id, service_type, area_id, owner, pickup_lat, pickup_lng, payment_status, paid_at, status,
                        lifetime_deadline, created_at, updated_at, closed_at)
        SELECT id, 'RIDE', 'A' || n % 50, 'shop-' || n % 50, 0, 0, CASE WHEN n % 200 = 1 THEN 'PAID' ELSE 'UNPAID' END,
               CASE WHEN n % 200 = 1 THEN at END,
               CASE WHEN n % 40 = 0 THEN 'DISPATCHING' ELSE 'CANCELLED_BY_USER' END, at + interval '1 year', at, at,
               CASE WHEN n % 40 <> 0 THEN at END FROM n;
    INSERT INTO order_details (order_id, notes, created_at) SELECT id, 'x', at FROM n;
    INSERT INTO drivers (id, service_types, lat, lng, available)
        SELECT 'D' || n, '{RIDE}', n % 100 - 50, n / 150 - 60, true FROM n;
    INSERT INTO offers (id, order_id, attempt_no, round, driver_id, state, offered_at, expires_at)
        SELECT gen_random_uuid(), id, 1, 1, 'D' || n, 'expired', at, at FROM n;
    INSERT INTO bookings (order_id, attempt_no, partner, state, job_id, created_at, closed_at)
        SELECT id, 1, 'p', 'refused', 'J' || n, at, at FROM n;
    INSERT INTO refunds (order_id, amount_minor, currency, state, next_try_at, created_at, closed_at)
        SELECT id, 1, 'IDR', CASE WHEN n % 400 = 1 THEN 'asking' ELSE 'refunded' END, CASE WHEN n % 400 = 1 THEN at END, at,
               CASE WHEN n % 400 <> 1 THEN at END FROM n;
    INSERT INTO payment_events (order_id, event_id, payment_status, received_at) SELECT id, 'e', 'PAID', at FROM n;
    INSERT INTO inbox (partner, event_id, order_id, body, state, received_at)
        SELECT 'p', 'e' || n, CASE WHEN n % 10 > 0 THEN id END, '{}', CASE WHEN n % 10 > 0 THEN 'processed' ELSE 'unmatched' END, at FROM n;
    INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, state, next_attempt_at, expires_at, created_at)
        SELECT id, CASE WHEN n % 3 = 0 THEN 'OFFER' ELSE 'NEWS' END, 'log', '', '{}',
               CASE WHEN n % 100 = 0 THEN 'pending' ELSE 'delivered' END, at, at, at FROM n;
    INSERT INTO outbox_attempts (outbox_id, attempt_no, at) SELECT id, 1, created_at FROM outbox;
    INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at, acked_at, acked_by)
        SELECT id, CASE WHEN n % 20 = 0 THEN 'FAILED_TO_GET_ORDER' ELSE 'DISPATCH_FAILED' END, '', '{}', at, at, 'x' FROM n;
    INSERT INTO order_events_kept (seq, order_id, to_status, reason, actor, at) SELECT n, id, 'COMPLETED', 'COMPLETED', 'x', at FROM n;
    INSERT INTO order_feed (order_id, owner, kind, status, reason, at)
        SELECT id, 'shop-' || n % 50, 'order.created', 'DISPATCHING', 'ORDER_CREATED', at FROM n ORDER BY at;
    INSERT INTO rankings (order_id, attempt_no, at) SELECT id, 1, at FROM n;
    INSERT INTO admission_audit (at, actor, what) SELECT at, 'x', 'flag' FROM n;
    INSERT INTO staff_actions (at, actor, action, subject) SELECT at, 'x', 'QUEUE_PAUSED', 'q' FROM n;
    INSERT INTO staff_requests (at, key_id, address, request) SELECT at, gen_random_uuid(), '10.0.0.1', 'POST /x' FROM n;
    INSERT INTO desk_takes (order_id, taken_by, ends_at) SELECT id, 'x', at FROM n;
    INSERT INTO worker_drains (boot, replica, drained_by, drained_at, alive_at) SELECT id, 'w', 'x', at, at FROM n;
    INSERT INTO api_keys (id, name, sha256, role, created_at, expires_at, superseded_at, oidc_subject)
        SELECT gen_random_uuid(), 'x', sha256(('k' || n)::bytea), 'viewer', at, at, at, 'x' FROM n;
    INSERT INTO console_sessions (id, sha256, key_id, role, created_at)
        SELECT gen_random_uuid(), sha256(convert_to(id, 'UTF8')), gen_random_uuid(), 'viewer', at FROM n;
    INSERT INTO driver_sign_in_links (sha256, driver_id, expires_at)
        SELECT sha256(('l' || n)::bytea), 'D' || n, at FROM n;
    INSERT INTO driver_sessions (id, sha256, driver_id, created_at, expires_at)
        SELECT gen_random_uuid(), sha256(('s' || n)::bytea), 'D' || n, at, at FROM n;
    INSERT INTO driver_push_subscriptions (session_id, endpoint, p256dh, auth)
        SELECT id, 'https://push.example.com/' || id, decode(repeat('04', 65), 'hex'), decode(repeat('00', 16), 'hex')
        FROM driver_sessions;
    INSERT INTO idempotency_keys (holder_id, key, request_hash, work_id, created_at)
        SELECT gen_random_uuid(), id, '', gen_random_uuid(), at FROM n;
    INSERT INTO erasures (subject, subject_id, reason, actor, erased_at) SELECT 'customer', id, 'x', 'x', at FROM n;
    INSERT INTO schedule_runs (name, slot) SELECT 'statistics', at FROM n;
    INSERT INTO queue_snapshots (at, queue, due, scheduled, leased, dead) SELECT at, 'q', 0, 0, 0, 0 FROM n;
    INSERT INTO waiting_snapshots (at, area_id, service_type, waiting, threshold, rejected, would_reject, bypassed, refuses)
        SELECT at, 'A', 'RIDE', 0, 1, 0, 0, 0, '' FROM n;
    INSERT INTO glance_snapshots (at, open_orders, to_decide, refunds_owed, lateness_p99_ms, oldest_due_ms, workers, servers_left_alone)
        SELECT at, 0, 0, 0, 0, 0, 0, 0 FROM n;
    INSERT INTO admission_counts (hour, area_id, service_type, source, verdict, cause, loyalty, waiting, requests)
        SELECT at, 'A', 'RIDE', 'check', 'REFUSED', 'threshold', '', 1, 1 FROM n;
    INSERT INTO shadow_refusals (at, source, area_id, service_type, threshold) SELECT at, 'check', 'A', 'RIDE', 1 FROM n;
    INSERT INTO supply_minutes (minute, counted_at) SELECT at, at FROM n;
    INSERT INTO supply_counts (minute, service_type, area_id, cell, free, busy, off_duty) SELECT at, 'RIDE', 'A', '', 1, 0, 0 FROM n;
    INSERT INTO reconcile_log (at, rebuild, looked_at, inserted, moved, held, compensated) SELECT at, false, 0, 0, 0, 0, 0 FROM n;
    INSERT INTO proof_violations (invariant, subject, detail, step, found_at, seen_at, gone_at)
        SELECT 'unbroken_chain', id, 'x', n, at, at, CASE WHEN n % 100 > 0 THEN at END FROM n;
    INSERT INTO dead_letters (job_id, died_at, queue, error, failed, lost, due_at, resolved_at, resolved_by, resolved_how)
        SELECT id, at, 'q', 'x', 5, 0, at, CASE WHEN n % 2 = 0 THEN at END, CASE WHEN n % 2 = 0 THEN 'x' END,
               CASE WHEN n % 2 = 0 THEN 'discarded' END FROM n;
    INSERT INTO provider_servers (id, provider, base_url, changed_by) VALUES ('S1', 'p', 'http://x', 'x');
    INSERT INTO bindings (id, server_id, account_id, config, cycle, call_no, created_at, updated_at, deleted_at)
        SELECT id, 'S1', 'A', '{}', 2, 2, at, at, CASE WHEN n % 2 = 0 THEN at END FROM n;
    INSERT INTO binding_watermarks (binding_id, removed_through, updated_at) SELECT id, 1, at FROM n;
    INSERT INTO transactions (trx_id, binding_id, cycle, server_id, account_id, status, started_at, ended_at)
        SELECT id || '.2', id, 2, 'S1', 'A', 'SUKSES', at, at FROM n;
    INSERT INTO transaction_snapshots (binding_id, cycle, call_no, part, at, result) SELECT id, 2, 2, 'end', at, 'success' FROM n;
    INSERT INTO binding_events (binding_id, at, kind, actor) SELECT id, at, 'started', 'x' FROM n;
    INSERT INTO outbox (order_id, binding_id, kind, channel, dedupe_key, payload, state, next_attempt_at, expires_at, created_at)
        SELECT '__binding__', id, 'OTP_WANTED', 'log', id, '{}', 'delivered', at, at, at FROM n;
    INSERT INTO alerts (order_id, binding_id, kind, dedupe_key, payload, raised_at, acked_at, acked_by)
        SELECT '__binding__', id, 'TRANSACTION_UNRESOLVED', id, '{}', at, at, 'x' FROM n;
    INSERT INTO plans (id, kind, action, filter, state, total, changed, created_by, created_at, run_by, started_at, ended_at, next_at)
        SELECT gen_random_uuid(), 'bindings', '\"stop\"', '{}', CASE WHEN n % 400 = 1 THEN 'RUNNING' ELSE 'DONE' END, 2, 1, 'x', at, 'x', at,
               CASE WHEN n % 400 <> 1 THEN at END, CASE WHEN n % 400 = 1 THEN at END FROM n;
    INSERT INTO plan_items (plan_id, subject_id, state, done_at)
        SELECT id, subject, CASE WHEN subject = 'A' THEN 'CHANGED' ELSE 'PENDING' END, CASE WHEN subject = 'A' THEN created_at END
        FROM plans, unnest(ARRAY['A', 'B']) AS s (subject);
    SET session_replication_role = origin;
    DROP TABLE n;
    ANALYZE";
