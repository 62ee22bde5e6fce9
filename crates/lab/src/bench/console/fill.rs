//! What pages show: a history, open orders of all kinds, and what else staff look after. All of it is made in Postgres itself.

use sqlx::Connection;

use super::{
    ConsoleOptions,
    history::{FilledHistory, connect_to_fill, fill_history},
};

/// Of the history, a partition each. Shorter than any retention.
const DAYS: i32 = 90;
/// One open order of so many is with a driver or waits for a person; the others wait for a driver.
const VARIED_PART: u32 = 10;
/// Bindings, and messages that could not be delivered.
const BINDINGS: i64 = 1_000;
const DEAD_MESSAGES: i64 = 2_000;
/// Plans that are done, with 50 items each.
const PLANS: i64 = 200;
/// What staff did.
const STAFF_ACTIONS: i64 = 20_000;
/// Minutes for which it is on record how queues and areas stood.
const MINUTES: i64 = 24 * 60;

/// Orders in each way of [`VARIED`].
pub(super) fn varied_count(open: u32) -> u32 {
    open / VARIED_PART
}

/// Of the `n`th open order that is with a driver or waits for a person, from 1.
pub(super) fn varied_id(n: u32) -> String {
    format!("M{n:09}")
}

/// Of the `n`th open order that waits for a driver, from 1.
pub(super) fn waiting_id(n: u32) -> String {
    format!("N{n:09}")
}

/// Fills a database that holds no order. Its Redis must be flushed afterwards: the rebuild puts timers and dead jobs there.
pub(super) async fn fill_console(url: &str, options: &ConsoleOptions) -> anyhow::Result<FilledHistory> {
    let (open, varied) = (options.open.get(), varied_count(options.open.get()));
    let filled = fill_history(url, options.closed.get(), open - varied, DAYS).await?;
    let mut db = connect_to_fill(url).await?;
    for statement in [VARIED, VARIED_EVENTS, DRIVERS, OPEN_ALERTS] {
        sqlx::query(statement).bind(i64::from(varied)).execute(&mut db).await?;
    }
    for (statement, count) in [
        (DEAD_JOBS, i64::from(options.dead)),
        (DEAD_OUTBOX, DEAD_MESSAGES),
        (SERVERS, 10),
        (BOUND_ACCOUNTS, BINDINGS),
        (PLANS_DONE, PLANS),
        (PLAN_ITEMS, 50),
        (ACTIONS, STAFF_ACTIONS),
        (QUEUES, MINUTES),
        (AREAS, MINUTES),
    ] {
        sqlx::query(statement).bind(count).execute(&mut db).await?;
    }
    sqlx::raw_sql("ANALYZE").execute(&mut db).await?;
    db.close().await?;
    Ok(filled)
}

// $1 orders of the last ten hours: of ten one is PENDING, one under review, four have a driver and four are under way.
const VARIED: &str = "-- bench: open orders of all kinds
    INSERT INTO orders (id, service_type, area_id, customer_id, pickup_lat, pickup_lng, amount_minor, currency, payment_status,
                        status, driver_id, attempt_no, held_for_review, held_reason, trip_deadline, lifetime_deadline, version,
                        created_at, updated_at)
    SELECT 'M' || lpad(n::text, 9, '0'), CASE WHEN n % 2 = 0 THEN 'RIDE' ELSE 'RENT' END, 'A-' || n % 50, 'CUS-' || n % 1000,
           -6.2, 106.8, 25000, 'IDR', CASE WHEN n % 3 = 0 THEN 'PAID' ELSE 'UNPAID' END,
           CASE WHEN kind = 0 THEN 'PENDING' WHEN kind = 1 THEN 'DISPATCHING' WHEN kind < 6 THEN 'DRIVER_ASSIGNED'
                ELSE 'PICKED_UP' END,
           CASE WHEN kind > 1 THEN 'D' || n END, 1, kind = 1, CASE WHEN kind = 1 THEN 'the bench asks for a look' END,
           CASE WHEN kind > 1 THEN at + interval '2 days' END, at + interval '3 days', 3, at, at
    FROM (SELECT n, n % 10 AS kind, dispatchq_now() - interval '10 hours' * n / $1::bigint AS at
          FROM generate_series(1, $1::bigint) n OFFSET 0) x";
const VARIED_EVENTS: &str = "-- bench: events of open orders of all kinds
    INSERT INTO order_events (order_id, to_status, reason, actor, attempt_no, at)
    SELECT id, status, 'ORDER_CREATED', 'sql', 0, created_at FROM orders
    WHERE id > 'M' AND id < 'N' AND closed_at IS NULL AND $1::bigint > 0";
// Far from every pickup: they are asked for nothing.
const DRIVERS: &str = "-- bench: drivers
    INSERT INTO drivers (id, service_types, lat, lng, available, idle_since)
    SELECT 'D' || n, ARRAY['RIDE', 'RENT'], -8.65, 115.2, n % 10 > 1, dispatchq_now() - n * interval '1 s'
    FROM generate_series(1, $1::bigint) n";
const OPEN_ALERTS: &str = "-- bench: open alerts
    INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at)
    SELECT 'M' || lpad(n::text, 9, '0'), 'DISPATCH_FAILED', '', '{}', dispatchq_now() - n * interval '1 s'
    FROM generate_series(1, $1::bigint) n WHERE n % 10 = 0";
// Of closed orders, which ask for no timer: they stay dead.
const DEAD_JOBS: &str = "-- bench: dead jobs
    INSERT INTO dead_letters (job_id, died_at, queue, error, failed, lost, due_at)
    SELECT (ARRAY['dispatch', 'timeout', 'notify'])[n % 3 + 1] || ':C' || lpad(n::text, 9, '0') || ':1', at,
           (ARRAY['dispatch-queue', 'dispatch-timeout-queue', 'notify-queue'])[n % 3 + 1],
           (ARRAY['the routing service answered 503', 'connection refused', 'timed out', 'no route to host'])[n % 4 + 1], 5, 0, at
    FROM (SELECT n, dispatchq_now() - interval '1 hour' - n * interval '10 s' AS at FROM generate_series(1, $1::bigint) n OFFSET 0) x";
const DEAD_OUTBOX: &str = "-- bench: dead messages
    INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, state, attempts, next_attempt_at, expires_at, last_error,
                        created_at)
    SELECT 'C' || lpad(n::text, 9, '0'), 'ORDER_COMPLETED', 'app', 'dead', '{}', 'dead', 8, at, at, 'the receiver answered 500', at
    FROM (SELECT n, dispatchq_now() - n * interval '1 minute' AS at FROM generate_series(1, $1::bigint) n OFFSET 0) x";
const SERVERS: &str = "-- bench: servers
    INSERT INTO provider_servers (id, provider, base_url, changed_by)
    SELECT 'S-' || n, 'bench', 'http://127.0.0.1:9', 'bench' FROM generate_series(1, $1::bigint) n";
const BOUND_ACCOUNTS: &str = "-- bench: bindings
    INSERT INTO bindings (id, server_id, account_id, config, created_at, updated_at)
    SELECT 'B-' || lpad(n::text, 6, '0'), 'S-' || n % 10 + 1, 'ACC-' || n, '{}', dispatchq_now(), dispatchq_now()
    FROM generate_series(1, $1::bigint) n";
const PLANS_DONE: &str = "-- bench: plans
    INSERT INTO plans (id, kind, action, filter, state, total, changed, created_by, created_at, run_by, started_at, ended_at)
    SELECT gen_random_uuid(), 'bindings', to_jsonb('stop'::text), '{}', 'DONE', 50, 50, 'operator:bench', at, 'operator:bench', at, at
    FROM (SELECT dispatchq_now() - n * interval '1 hour' AS at FROM generate_series(1, $1::bigint) n OFFSET 0) x";
const PLAN_ITEMS: &str = "-- bench: items of plans
    INSERT INTO plan_items (plan_id, subject_id, state, done_at)
    SELECT id, 'B-' || lpad(n::text, 6, '0'), 'CHANGED', created_at FROM plans, generate_series(1, $1::bigint) n";
const ACTIONS: &str = "-- bench: what staff did
    INSERT INTO staff_actions (at, actor, action, subject, reason)
    SELECT dispatchq_now() - n * interval '1 minute', 'operator:bench', 'QUEUE_PAUSED', 'notify-queue', 'a storm'
    FROM generate_series(1, $1::bigint) n";
const QUEUES: &str = "-- bench: how queues stood
    INSERT INTO queue_snapshots (at, queue, due, scheduled, leased, dead)
    SELECT dispatchq_now() - n * interval '1 minute', 'bench-' || q, n % 7, 1000, n % 5, 10
    FROM generate_series(1, $1::bigint) n, generate_series(1, 8) q";
const AREAS: &str = "-- bench: how areas stood
    INSERT INTO waiting_snapshots (at, area_id, service_type, waiting, threshold, rejected, would_reject, bypassed)
    SELECT dispatchq_now() - n * interval '1 minute', 'A-' || a, 'RIDE', n % 100, 100, 0, 0, 0
    FROM generate_series(1, $1::bigint) n, generate_series(0, 49) a";
