-- Fills a database without orders: closed orders of 90 days with their history, open orders of all kinds, and other
-- records for staff. The numbers in braces are replaced: {closed}, {waiting} and {varied} orders, {dead} dead jobs. The
-- first 40,000 closed orders have offers, messages and rankings.

SELECT dispatchq_add_history_day(((now() AT TIME ZONE 'UTC')::date) - n) FROM generate_series(1, 90) n;

-- One order in 10,000 waits for its refund, and the refund of one in 10,000 has started. Places are spread over a city.
INSERT INTO orders (id, service_type, area_id, pickup_lat, pickup_lng, amount_minor, currency, payment_status, paid_at, status,
                    driver_id, attempt_no, lifetime_deadline, version, created_at, updated_at, closed_at)
SELECT 'C' || lpad(n::text, 9, '0'), 'RIDE', 'A-' || n % 50, -6.2 + n % 101 * 0.002, 106.8 + n % 97 * 0.002, 25000, 'IDR',
       CASE WHEN n % 5000 = 0 THEN 'PAID' ELSE 'SETTLEMENT' END, at,
       CASE WHEN n % 10000 = 0 THEN 'REFUND_PENDING' WHEN n % 5000 = 0 THEN 'CANCELLED_BY_SYSTEM_AFTER_PAYMENT' ELSE 'COMPLETED' END,
       'D' || n % 10000, 1, at + interval '30 minutes', 4, at, at + interval '20 minutes', at + interval '20 minutes'
FROM (SELECT n, dispatchq_now() - interval '21 minutes' - 90 * interval '1 day' * (1 - n::float8 / {closed}) AS at
      FROM generate_series(1, {closed}) n OFFSET 0) x;

INSERT INTO order_events (order_id, from_status, to_status, reason, actor, attempt_no, at)
SELECT id, 'PICKED_UP', status, 'COMPLETED', 'driver', 1, closed_at FROM orders;

-- Orders that wait for a driver. One in 20 is scheduled for the next week.
INSERT INTO orders (id, service_type, area_id, pickup_lat, pickup_lng, payment_status, status, next_attempt_at, pickup_at, starts_at,
                    lifetime_deadline, created_at, updated_at)
SELECT 'N' || lpad(n::text, 9, '0'), 'RIDE', 'A-' || n % 50, -6.2 + n % 101 * 0.002, 106.8 + n % 97 * 0.002, 'UNPAID',
       CASE WHEN pickup IS NULL THEN 'DISPATCHING' ELSE 'SCHEDULED' END, CASE WHEN pickup IS NULL THEN at + interval '1 day' END,
       pickup, pickup - interval '30 minutes', coalesce(pickup, at) + interval '2 days', at, at
FROM (SELECT n, dispatchq_now() - n * interval '1 ms' AS at,
             CASE WHEN n % 20 = 0 THEN dispatchq_now() + interval '2 hours' + n % 9000 * interval '1 minute' END AS pickup
      FROM generate_series(1, {waiting}) n OFFSET 0) x;

INSERT INTO order_events (order_id, to_status, reason, actor, at)
SELECT id, status, 'ORDER_CREATED', 'sql', created_at FROM orders WHERE closed_at IS NULL;

INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, next_attempt_at, expires_at, created_at)
SELECT id, 'OFFER', 'log', '', '{}', created_at + interval '1 hour', created_at + interval '1 day', created_at
FROM orders WHERE closed_at IS NULL ORDER BY id LIMIT {waiting} / 50;

INSERT INTO offers (id, order_id, attempt_no, round, driver_id, state, offered_at, expires_at, responded_at)
SELECT gen_random_uuid(), id, a, 1, 'D' || a, 'declined', created_at, created_at, created_at
FROM (SELECT * FROM orders ORDER BY id LIMIT 40000) o, generate_series(1, 2) a;

WITH m AS (
    INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, state, next_attempt_at, expires_at, created_at)
    SELECT id, CASE WHEN k = 1 THEN 'OFFER' ELSE 'ORDER_COMPLETED' END, 'app', k::text, '{}', 'delivered',
           created_at, created_at, created_at
    FROM (SELECT * FROM orders ORDER BY id LIMIT 40000) o, generate_series(1, 3) k RETURNING id, created_at)
INSERT INTO outbox_attempts (outbox_id, attempt_no, at) SELECT id, 1, created_at FROM m;

INSERT INTO payment_events (order_id, event_id, payment_status, received_at)
SELECT id, 'paid', 'PAID', created_at FROM orders ORDER BY id LIMIT 40000;

INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at, acked_at, acked_by)
SELECT id, 'DISPATCH_FAILED', '', '{}', created_at, created_at, 'anna'
FROM (SELECT * FROM orders ORDER BY id LIMIT 40000) o WHERE right(id, 1) = '0';

INSERT INTO rankings (order_id, attempt_no, at, drivers, distances_m, idle_min, live_offers, scores)
SELECT o.id, 1, o.created_at, r.drivers, r.metres, array_fill(1, '{10}'), array_fill(0, '{10}'), r.metres
FROM (SELECT array_agg('D' || k) AS drivers, array_agg(k * 100) AS metres FROM generate_series(1, 10) k) r,
     (SELECT id, created_at FROM orders ORDER BY id LIMIT 40000) o;

-- Open orders of the last ten hours. Of ten orders one is PENDING, one is under review, four have a driver and four are
-- on the trip.
INSERT INTO orders (id, service_type, area_id, customer_id, pickup_lat, pickup_lng, amount_minor, currency, payment_status,
                    status, driver_id, attempt_no, held_for_review, held_reason, trip_deadline, lifetime_deadline, version,
                    created_at, updated_at)
SELECT 'M' || lpad(n::text, 9, '0'), CASE WHEN n % 2 = 0 THEN 'RIDE' ELSE 'RENT' END, 'A-' || n % 50, 'CUS-' || n % 1000,
       -6.2 + n % 101 * 0.002, 106.8 + n % 97 * 0.002, 25000, 'IDR', CASE WHEN n % 3 = 0 THEN 'PAID' ELSE 'UNPAID' END,
       CASE WHEN kind = 0 THEN 'PENDING' WHEN kind = 1 THEN 'DISPATCHING' WHEN kind < 6 THEN 'DRIVER_ASSIGNED'
            ELSE 'PICKED_UP' END,
       CASE WHEN kind > 1 THEN 'D' || n END, 1, kind = 1, CASE WHEN kind = 1 THEN 'the bench asks for a look' END,
       CASE WHEN kind > 1 THEN at + interval '2 days' END, at + interval '3 days', 3, at, at
FROM (SELECT n, n % 10 AS kind, dispatchq_now() - interval '10 hours' * n / {varied} AS at
      FROM generate_series(1, {varied}) n OFFSET 0) x;

INSERT INTO order_events (order_id, to_status, reason, actor, attempt_no, at)
SELECT id, status, 'ORDER_CREATED', 'sql', 0, created_at FROM orders
WHERE id > 'M' AND id < 'N' AND closed_at IS NULL;

-- Contents of every open order, and of the explained closed ones.
INSERT INTO order_details (order_id, pickup_address, notes, metadata, created_at)
SELECT id, 'Jalan Contoh 1', 'Gate B', jsonb_build_object('crm_id', 'CRM-' || right(id, 4), 'branch', 'B-' || right(id, 1)), created_at
FROM (SELECT id, created_at FROM orders WHERE closed_at IS NULL
      UNION (SELECT id, created_at FROM orders ORDER BY id LIMIT 40000)) o;
UPDATE orders SET has_details = true WHERE closed_at IS NULL OR id IN (SELECT id FROM orders ORDER BY id LIMIT 40000);

INSERT INTO drivers (id, service_types, lat, lng, available, idle_since)
SELECT 'D' || n, ARRAY['RIDE', 'RENT'], -8.65 + n % 101 * 0.002, 115.2 + n % 97 * 0.002, n % 10 > 1, dispatchq_now() - n * interval '1 s'
FROM generate_series(1, {varied}) n;

INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at)
SELECT 'M' || lpad(n::text, 9, '0'), 'DISPATCH_FAILED', '', '{}', dispatchq_now() - n * interval '1 s'
FROM generate_series(1, {varied}) n WHERE n % 10 = 0;

INSERT INTO dead_letters (job_id, died_at, queue, error, failed, lost, due_at)
SELECT (ARRAY['dispatch', 'timeout', 'notify'])[n % 3 + 1] || ':C' || lpad(n::text, 9, '0') || ':1', at,
       (ARRAY['dispatch-queue', 'dispatch-timeout-queue', 'notify-queue'])[n % 3 + 1],
       (ARRAY['the routing service answered 503', 'connection refused', 'timed out', 'no route to host'])[n % 4 + 1], 5, 0, at
FROM (SELECT n, dispatchq_now() - interval '1 hour' - n * interval '10 s' AS at FROM generate_series(1, {dead}) n OFFSET 0) x;

INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, state, attempts, next_attempt_at, expires_at, last_error,
                    created_at)
SELECT 'C' || lpad(n::text, 9, '0'), 'ORDER_COMPLETED', 'app', 'dead', '{}', 'dead', 8, at, at, 'the receiver answered 500', at
FROM (SELECT n, dispatchq_now() - n * interval '1 minute' AS at FROM generate_series(1, 2000) n OFFSET 0) x;

INSERT INTO provider_servers (id, provider, base_url, changed_by)
SELECT 'S-' || n, 'bench', 'http://127.0.0.1:9', 'bench' FROM generate_series(1, 10) n;

INSERT INTO bindings (id, server_id, account_id, config, created_at, updated_at)
SELECT 'B-' || lpad(n::text, 6, '0'), 'S-' || n % 10 + 1, 'ACC-' || n, '{}', dispatchq_now(), dispatchq_now()
FROM generate_series(1, 1000) n;

INSERT INTO plans (id, kind, action, filter, state, total, changed, created_by, created_at, run_by, started_at, ended_at)
SELECT gen_random_uuid(), 'bindings', to_jsonb('stop'::text), '{}', 'DONE', 50, 50, 'operator:bench', at, 'operator:bench', at, at
FROM (SELECT dispatchq_now() - n * interval '1 hour' AS at FROM generate_series(1, 200) n OFFSET 0) x;

INSERT INTO plan_items (plan_id, subject_id, state, done_at)
SELECT id, 'B-' || lpad(n::text, 6, '0'), 'CHANGED', created_at FROM plans, generate_series(1, 50) n;

INSERT INTO staff_actions (at, actor, action, subject, reason)
SELECT dispatchq_now() - n * interval '1 minute', 'operator:bench', 'QUEUE_PAUSED', 'notify-queue', 'a storm'
FROM generate_series(1, 20000) n;

-- Snapshots of eight days, one a minute, of all queues and of the installation.
INSERT INTO queue_snapshots (at, queue, due, scheduled, leased, dead)
SELECT dispatchq_now() - n * interval '1 minute', q, n % 7, 1000, n % 5, 10
FROM generate_series(1, 11520) n, unnest(ARRAY['dispatch-queue', 'dispatch-timeout-queue', 'jobid-poll-queue', 'lifetime-cancel-queue',
     'compensation-queue', 'notify-queue', 'periodic-queue', 'binding-queue']) q;

INSERT INTO glance_snapshots (at, open_orders, to_decide, refunds_owed, lateness_p99_ms, oldest_due_ms, workers, servers_left_alone)
SELECT dispatchq_now() - n * interval '1 minute', 1000 + n % 60, n % 9, n % 4, 20 + n % 30, n % 50, 2, 0 FROM generate_series(1, 11520) n;

INSERT INTO waiting_snapshots (at, area_id, service_type, waiting, threshold, rejected, would_reject, bypassed, refuses)
SELECT dispatchq_now() - n * interval '1 minute', 'A-' || a, 'RIDE', n % 100, 100, 0, 0, 0, ''
FROM generate_series(1, 1440) n, generate_series(0, 49) a;

INSERT INTO admission_counts (hour, area_id, service_type, source, verdict, cause, loyalty, waiting, requests)
SELECT date_trunc('hour', dispatchq_now()) - h * interval '1 hour', 'A-' || a, 'RIDE', 'create', v.verdict, v.cause, '', w, 5
FROM generate_series(0, 47) h, generate_series(0, 49) a, generate_series(0, 20) w,
     (VALUES ('TAKEN', 'none'), ('REFUSED', 'threshold')) v (verdict, cause);

-- Webhook endpoints of producers, each with the tries to deliver to it.
INSERT INTO webhook_endpoints (id, producer, url, events, state, secret)
SELECT gen_random_uuid(), 'shop-' || n % 50, 'https://shop.example.com/' || n, '{}', CASE WHEN n % 10 = 0 THEN 'paused' ELSE 'active' END,
       'whsec_' || encode(sha256(n::text::bytea), 'base64')
FROM generate_series(1, 200) n;

INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, state, attempts, next_attempt_at, expires_at, created_at, delivered_at)
SELECT 'C' || lpad(n::text, 9, '0'), 'order.completed', 'endpoint:' || e.id, n::text, '{}', 'delivered', 1, at, at, at, at
FROM webhook_endpoints e, (SELECT n, dispatchq_now() - n * interval '1 minute' AS at FROM generate_series(1, 200) n OFFSET 0) x;

INSERT INTO proof_violations (invariant, subject, detail, order_id, step, found_at, seen_at)
SELECT 'unbroken_chain', 'C' || lpad(n::text, 9, '0'), 'the history has a gap', 'C' || lpad(n::text, 9, '0'), n, dispatchq_now(), dispatchq_now()
FROM generate_series(1, 500) n;

INSERT INTO users (id, name, role) SELECT 'support-' || n, 'Support ' || n, 'support' FROM generate_series(1, 100) n;
