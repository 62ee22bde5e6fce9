//! Closed and open orders with their history, made in Postgres itself.

use std::{
    str::FromStr,
    time::{Duration, Instant},
};

use sqlx::{ConnectOptions, PgConnection, postgres::PgConnectOptions};

/// First closed orders, which have offers, messages and rankings.
pub(super) const EXPLAINED: u32 = 40_000;
/// Orders of one INSERT.
const CHUNK: u64 = 250_000;

#[derive(Debug)]
pub(super) struct FilledHistory {
    pub(super) bytes: i64,
    pub(super) took: Duration,
}

/// Of the `n`th closed order, from 1.
pub(super) fn closed_id(n: u64) -> String {
    format!("C{n:09}")
}

/// Connects for statements that fill tables: they are long, and none of them is worth a warning.
pub(super) async fn connect_to_fill(url: &str) -> anyhow::Result<PgConnection> {
    let mut db = PgConnectOptions::from_str(url)?.disable_statement_logging().connect().await?;
    // Rows fit each other by the way they are made: no trigger has to look.
    sqlx::raw_sql("SET session_replication_role = replica; SET synchronous_commit = off").execute(&mut db).await?;
    Ok(db)
}

/// Fills a database that holds no order. Orders are those of areas; the first 40,000 have offers, messages and rankings.
pub(super) async fn fill_history(url: &str, closed: u32, open: u32, days: i32) -> anyhow::Result<FilledHistory> {
    let begun = Instant::now();
    let mut db = connect_to_fill(url).await?;
    sqlx::raw_sql("SET work_mem = '256MB'").execute(&mut db).await?;
    let rows = u64::from(closed);
    sqlx::query(
        "-- bench: add days
         SELECT dispatchq_add_history_day(((now() AT TIME ZONE 'UTC')::date) - n) FROM generate_series(1, $1) n",
    )
    .bind(days)
    .execute(&mut db)
    .await?;
    let mut from = 0;
    while from < rows {
        let to = (from + CHUNK).min(rows);
        for statement in [ORDERS, EVENTS] {
            sqlx::query(statement)
                .bind(i64::try_from(from)?)
                .bind(i64::try_from(to)?)
                .bind(i64::try_from(rows)?)
                .bind(days)
                .execute(&mut db)
                .await?;
        }
        tracing::info!(orders = to, "filled");
        from = to;
    }
    let open = i64::from(open);
    for statement in [OPEN, OPEN_EVENTS, PENDING] {
        sqlx::query(statement).bind(open).execute(&mut db).await?;
    }
    for statement in [OFFERS, MESSAGES, PAYMENTS, ALERTS, RANKINGS] {
        sqlx::query(statement).bind(i64::from(EXPLAINED)).execute(&mut db).await?;
    }
    sqlx::raw_sql("VACUUM ANALYZE").execute(&mut db).await?;
    let bytes = sqlx::query_scalar(
        "-- bench: size
         SELECT pg_database_size(current_database())",
    )
    .fetch_one(&mut db)
    .await?;
    Ok(FilledHistory { bytes, took: begun.elapsed() })
}

// $1 < n <= $2 of $3 orders, evenly over $4 days. One in 5,000 waits for its refund.
const ORDERS: &str = "-- bench: closed orders
    INSERT INTO orders (id, service_type, area_id, pickup_lat, pickup_lng, amount_minor, currency, payment_status, paid_at, status,
                        driver_id, attempt_no, lifetime_deadline, version, created_at, updated_at, closed_at)
    SELECT 'C' || lpad(n::text, 9, '0'), 'RIDE', 'A-' || n % 50, -6.2, 106.8, 25000, 'IDR',
           CASE WHEN n % 5000 = 0 THEN 'PAID' ELSE 'SETTLEMENT' END, at,
           CASE WHEN n % 5000 = 0 THEN 'CANCELLED_BY_SYSTEM_AFTER_PAYMENT' ELSE 'COMPLETED' END,
           'D' || n % 10000, 1, at + interval '30 minutes', 4, at, at + interval '20 minutes', at + interval '20 minutes'
    FROM (SELECT n, dispatchq_now() - interval '21 minutes' - $4::integer * interval '1 day' * (1 - n::float8 / $3::bigint) AS at
          FROM generate_series($1::bigint + 1, $2::bigint) n OFFSET 0) x";
const EVENTS: &str = "-- bench: their events
    INSERT INTO order_events (order_id, from_status, to_status, reason, actor, attempt_no, at)
    SELECT id, 'PICKED_UP', status, 'COMPLETED', 'driver', 1, closed_at FROM orders
    WHERE id > 'C' || lpad(($1::bigint)::text, 9, '0') AND id <= 'C' || lpad(($2::bigint)::text, 9, '0') AND $3::bigint > 0 AND $4::integer > 0";
const OPEN: &str = "-- bench: open orders
    INSERT INTO orders (id, service_type, area_id, pickup_lat, pickup_lng, payment_status, status, next_attempt_at,
                        lifetime_deadline, created_at, updated_at)
    SELECT 'N' || lpad(n::text, 9, '0'), 'RIDE', 'A-' || n % 50, -6.2, 106.8, 'UNPAID', 'DISPATCHING', at + interval '1 day',
           at + interval '2 days', at, at
    FROM (SELECT n, dispatchq_now() - n * interval '1 ms' AS at FROM generate_series(1, $1::bigint) n OFFSET 0) x";
const OPEN_EVENTS: &str = "-- bench: events of open orders
    INSERT INTO order_events (order_id, to_status, reason, actor, at)
    SELECT id, status, 'ORDER_CREATED', 'sql', created_at FROM orders WHERE closed_at IS NULL AND $1::bigint > 0";
const PENDING: &str = "-- bench: undelivered messages
    INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, next_attempt_at, expires_at, created_at)
    SELECT id, 'OFFER', 'log', '', '{}', created_at + interval '1 hour', created_at + interval '1 day', created_at
    FROM orders WHERE closed_at IS NULL ORDER BY id LIMIT $1::bigint / 50";
const OFFERS: &str = "-- bench: offers
    INSERT INTO offers (id, order_id, attempt_no, round, driver_id, state, offered_at, expires_at, responded_at)
    SELECT gen_random_uuid(), id, a, 1, 'D' || a, 'declined', created_at, created_at, created_at
    FROM (SELECT * FROM orders ORDER BY id LIMIT $1) o, generate_series(1, 2) a";
const MESSAGES: &str = "-- bench: messages
    WITH m AS (
        INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, state, next_attempt_at, expires_at, created_at)
        SELECT id, CASE WHEN k = 1 THEN 'OFFER' ELSE 'ORDER_COMPLETED' END, 'app', k::text, '{}', 'delivered',
               created_at, created_at, created_at
        FROM (SELECT * FROM orders ORDER BY id LIMIT $1) o, generate_series(1, 3) k RETURNING id, created_at)
    INSERT INTO outbox_attempts (outbox_id, attempt_no, at) SELECT id, 1, created_at FROM m";
const PAYMENTS: &str = "-- bench: payments
    INSERT INTO payment_events (order_id, event_id, payment_status, received_at)
    SELECT id, 'paid', 'PAID', created_at FROM orders ORDER BY id LIMIT $1";
const ALERTS: &str = "-- bench: alerts
    INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at, acked_at, acked_by)
    SELECT id, 'DISPATCH_FAILED', '', '{}', created_at, created_at, 'anna'
    FROM (SELECT * FROM orders ORDER BY id LIMIT $1) o WHERE right(id, 1) = '0'";
const RANKINGS: &str = "-- bench: rankings
    INSERT INTO rankings (order_id, attempt_no, at, candidates)
    SELECT o.id, 1, o.created_at, r.ranking
    FROM (SELECT jsonb_build_object('excluded', jsonb '[]', 'ranked', jsonb_agg(jsonb_build_object(
              'driver_id', 'D' || k, 'distance_m', k * 100, 'idle_min', 1, 'live_offers', 0, 'score', k * 100))) AS ranking
          FROM generate_series(1, 10) k) r,
         (SELECT id, created_at FROM orders ORDER BY id LIMIT $1) o";
