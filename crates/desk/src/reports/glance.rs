//! Summary counts for pages that are open all day. Each statement reads a bounded number of rows through an index.

use chrono::{DateTime, TimeDelta, Utc};
use model::order::OrderStatus;

use foundation::db::Pool;

/// Maximum rows that are counted.
pub const MOST: i64 = 10_000;
/// Maximum servers that are counted.
const MOST_SERVERS: i64 = 500;
/// Period of the curves.
const CURVES: TimeDelta = TimeDelta::hours(1);

/// A count of at most [`MOST`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BoundedCount {
    pub rows: u64,
    /// Whether there are more rows.
    pub is_cut: bool,
}

impl BoundedCount {
    fn new(rows: i64) -> Self {
        Self { rows: rows.min(MOST).unsigned_abs(), is_cut: rows > MOST }
    }
}

/// Open orders by what they wait for. If there are more than [`MOST`], only the oldest are counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenOrders {
    pub all: BoundedCount,
    /// Orders under review.
    pub held: u64,
    /// Orders that wait for a person: PENDING or under review.
    pub to_decide: u64,
    /// Age of the order that has waited longest, scheduled ones excluded.
    pub oldest: Option<DateTime<Utc>>,
    /// Contains only statuses that have orders.
    pub by_status: Vec<(OrderStatus, u64)>,
}

#[derive(sqlx::FromRow)]
struct StatusCount {
    status: OrderStatus,
    orders: i64,
    held: i64,
    to_decide: i64,
    oldest: DateTime<Utc>,
}

pub async fn count_open_orders(db: &Pool) -> Result<OpenOrders, sqlx::Error> {
    let rows: Vec<StatusCount> = sqlx::query_as(
        "-- glance at open orders
         WITH page AS MATERIALIZED (
             (SELECT status, held_for_review, created_at FROM orders
              WHERE closed_at IS NULL AND starts_at IS NULL ORDER BY created_at, id LIMIT $1)
             UNION ALL (SELECT status, held_for_review, starts_at FROM orders
                        WHERE starts_at IS NOT NULL AND closed_at IS NULL ORDER BY pickup_at, id LIMIT $1))
         SELECT status, count(*) AS orders, count(*) FILTER (WHERE held_for_review) AS held,
                count(*) FILTER (WHERE held_for_review OR status = 'PENDING') AS to_decide, min(created_at) AS oldest
         FROM page GROUP BY status ORDER BY status",
    )
    .bind(MOST + 1)
    .fetch_all(db)
    .await?;
    let oldest = rows.iter().filter(|row| row.status != OrderStatus::Scheduled).map(|row| row.oldest).min();
    let mut open = OpenOrders { oldest, ..OpenOrders::default() };
    open.all = BoundedCount::new(rows.iter().map(|row| row.orders).sum());
    open.held = rows.iter().map(|row| row.held.unsigned_abs()).sum();
    open.to_decide = rows.iter().map(|row| row.to_decide.unsigned_abs()).sum();
    open.by_status = rows.into_iter().map(|row| (row.status, row.orders.unsigned_abs())).collect();
    Ok(open)
}

/// Refunds that are owed or started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwedRefunds {
    pub all: BoundedCount,
    /// Refunds that support has started.
    pub started: u64,
    pub oldest: Option<DateTime<Utc>>,
    /// Sums by currency, in the smallest unit. A sum may exceed 64 bits.
    pub sums: Vec<(String, i128)>,
}

#[derive(sqlx::FromRow)]
struct RefundSum {
    currency: Option<String>,
    refunds: i64,
    started: i64,
    sum: Option<String>,
    oldest: Option<DateTime<Utc>>,
}

pub async fn count_refunds(db: &Pool) -> Result<OwedRefunds, sqlx::Error> {
    let rows: Vec<RefundSum> = sqlx::query_as(
        "-- glance at refunds
         WITH page AS MATERIALIZED (
             SELECT status, currency, amount_minor, closed_at FROM orders
             WHERE owes_refund AND closed_at IS NOT NULL
             ORDER BY closed_at, id LIMIT $1)
         SELECT currency, count(*) AS refunds, count(*) FILTER (WHERE status = 'REFUND_PENDING') AS started,
                sum(amount_minor)::text AS sum, min(closed_at) AS oldest
         FROM page GROUP BY currency ORDER BY currency",
    )
    .bind(MOST + 1)
    .fetch_all(db)
    .await?;
    Ok(OwedRefunds {
        all: BoundedCount::new(rows.iter().map(|row| row.refunds).sum()),
        started: rows.iter().map(|row| row.started.unsigned_abs()).sum(),
        oldest: rows.iter().filter_map(|row| row.oldest).min(),
        sums: rows.into_iter().filter_map(|row| row.currency.zip(row.sum?.parse().ok())).collect(),
    })
}

/// Alerts that are not acknowledged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenAlerts {
    pub all: BoundedCount,
    pub oldest: Option<DateTime<Utc>>,
}

/// Counts alerts that are not acknowledged.
pub async fn count_alerts(db: &Pool) -> Result<OpenAlerts, sqlx::Error> {
    let (alerts, oldest): (i64, Option<DateTime<Utc>>) = sqlx::query_as(
        "-- glance at alerts
         SELECT count(*), min(raised_at) FROM (SELECT raised_at FROM alerts WHERE acked_at IS NULL LIMIT $1) page",
    )
    .bind(MOST + 1)
    .fetch_one(db)
    .await?;
    Ok(OpenAlerts { all: BoundedCount::new(alerts), oldest })
}

/// Enabled servers of providers, and how many of them are paused. If there are more than [`MOST_SERVERS`], only the
/// first by id are counted.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct ServerGlance {
    /// Postgres' time.
    pub now: DateTime<Utc>,
    pub enabled: i64,
    pub left_alone: i64,
    /// Server with the longest pause.
    pub longest: Option<String>,
    pub until: Option<DateTime<Utc>>,
}

/// Counts providers' servers. Also returns the time.
pub async fn count_servers(db: &Pool) -> Result<ServerGlance, sqlx::Error> {
    sqlx::query_as(
        "-- glance at servers of providers
         WITH page AS MATERIALIZED (SELECT id, paused_until FROM provider_servers WHERE enabled ORDER BY id LIMIT $1)
         SELECT n.now, s.* FROM (SELECT dispatchq_now() AS now) n CROSS JOIN LATERAL (
             SELECT count(*) AS enabled, count(*) FILTER (WHERE paused_until > n.now) AS left_alone,
                    (array_agg(id ORDER BY paused_until DESC, id) FILTER (WHERE paused_until > n.now))[1] AS longest,
                    max(paused_until) FILTER (WHERE paused_until > n.now) AS until
             FROM page) s",
    )
    .bind(MOST_SERVERS)
    .fetch_one(db)
    .await
}

/// Jobs of all queues together at one time.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct QueuePoint {
    pub at: DateTime<Utc>,
    pub due: i64,
    pub dead: i64,
}

/// Returns the curve of the queues in the last hour, oldest first.
pub async fn queue_curve(db: &Pool) -> Result<Vec<QueuePoint>, sqlx::Error> {
    sqlx::query_as(
        "-- curve of queues
         SELECT at, sum(due)::bigint AS due, sum(dead)::bigint AS dead FROM queue_snapshots
         WHERE at > (SELECT dispatchq_now()) - $1 * interval '1 second' GROUP BY at ORDER BY at LIMIT 1000",
    )
    .bind(CURVES.num_seconds())
    .fetch_all(db)
    .await
}

/// State of all areas together at one time.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct AreaPoint {
    pub at: DateTime<Utc>,
    pub waiting: i64,
    /// Areas and service types that refuse orders, for any cause.
    pub full: i64,
    /// The same by cause, in the order of [`AreaRefusal::ALL`](model::admission::decide::AreaRefusal::ALL).
    pub by_cause: Vec<i64>,
    /// Requests refused since the previous point.
    pub rejected: i64,
}

/// Returns the curve of the areas in the last hour, oldest first.
pub async fn area_curve(db: &Pool) -> Result<Vec<AreaPoint>, sqlx::Error> {
    sqlx::query_as(
        "-- curve of areas
         SELECT at, sum(waiting)::bigint AS waiting, count(*) FILTER (WHERE refuses <> '') AS full,
                ARRAY[count(*) FILTER (WHERE refuses = 'DISABLED'), count(*) FILTER (WHERE refuses = 'FORCED'),
                      count(*) FILTER (WHERE refuses = 'THRESHOLD'), count(*) FILTER (WHERE refuses = 'COOLING')] AS by_cause,
                sum(rejected)::bigint AS rejected
         FROM waiting_snapshots
         WHERE at > (SELECT dispatchq_now()) - $1 * interval '1 second' GROUP BY at ORDER BY at LIMIT 1000",
    )
    .bind(CURVES.num_seconds())
    .fetch_all(db)
    .await
}

/// State of the whole system at one time.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct GlancePoint {
    pub at: DateTime<Utc>,
    pub open_orders: i64,
    /// Owed or started refunds, at most [`MOST`].
    pub refunds_owed: i64,
    /// 99th percentile of the delay of jobs that started since the last full hour.
    pub lateness_p99_ms: i64,
    /// PENDING or under review.
    pub to_decide: i64,
    pub oldest_due_ms: i64,
    pub workers: i64,
    pub servers_left_alone: i64,
}

/// Returns the curve of the whole system in the last hour, oldest first.
pub async fn glance_curve(db: &Pool) -> Result<Vec<GlancePoint>, sqlx::Error> {
    sqlx::query_as(
        "-- curve of the whole
         SELECT at, open_orders, refunds_owed, lateness_p99_ms, to_decide, oldest_due_ms, workers, servers_left_alone
         FROM glance_snapshots
         WHERE at > (SELECT dispatchq_now()) - $1 * interval '1 second' ORDER BY at LIMIT 1000",
    )
    .bind(CURVES.num_seconds())
    .fetch_all(db)
    .await
}

/// State of the engine, from Redis and the census of orders.
#[derive(Debug, Clone, Copy)]
pub struct EngineStanding {
    pub open_orders: u64,
    pub lateness_p99_ms: u64,
    /// Age of the job that has been due longest; 0: none is due.
    pub oldest_due_ms: u64,
    pub workers: u64,
}

/// Stores the state of the whole system: the given state of the engine, and counts from Postgres.
pub async fn save_glance(db: &Pool, engine: EngineStanding) -> Result<(), sqlx::Error> {
    let refunds = count_refunds(db).await?;
    let open = count_open_orders(db).await?;
    let servers = count_servers(db).await?;
    sqlx::query(
        "-- snapshot of the whole
         INSERT INTO glance_snapshots
             (at, open_orders, refunds_owed, lateness_p99_ms, to_decide, oldest_due_ms, workers, servers_left_alone)
         VALUES (dispatchq_now(), $1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
    )
    .bind(engine.open_orders.cast_signed())
    .bind(refunds.all.rows.cast_signed())
    .bind(engine.lateness_p99_ms.cast_signed())
    .bind(open.to_decide.cast_signed())
    .bind(engine.oldest_due_ms.cast_signed())
    .bind(engine.workers.cast_signed())
    .bind(servers.left_alone)
    .execute(db)
    .await
    .map(drop)
}
