//! How things stand at one glance, for pages that are looked at all day: each statement reads a bounded number of rows by an index.

use chrono::{DateTime, TimeDelta, Utc};
use model::order::OrderStatus;

use crate::db::Pool;

/// No more rows are counted.
pub const MOST: i64 = 10_000;
/// How far back the curves go.
const CURVES: TimeDelta = TimeDelta::hours(1);

/// A count of [`MOST`] at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BoundedCount {
    pub rows: u64,
    /// There are more.
    pub is_cut: bool,
}

impl BoundedCount {
    fn new(rows: i64) -> Self {
        Self { rows: rows.min(MOST).unsigned_abs(), is_cut: rows > MOST }
    }
}

/// Open orders, by what they wait for. Of more than [`MOST`] the oldest are counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenOrders {
    pub all: BoundedCount,
    /// Under review.
    pub held: u64,
    /// PENDING, or under review: they wait for a person.
    pub to_decide: u64,
    pub oldest: Option<DateTime<Utc>>,
    /// Statuses without an order are left out.
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

/// Counts open orders by status.
pub async fn count_open_orders(db: &Pool) -> Result<OpenOrders, sqlx::Error> {
    let rows: Vec<StatusCount> = sqlx::query_as(
        "-- glance at open orders
         WITH page AS MATERIALIZED (
             SELECT status, held_for_review, created_at FROM orders WHERE closed_at IS NULL ORDER BY created_at, id LIMIT $1)
         SELECT status, count(*) AS orders, count(*) FILTER (WHERE held_for_review) AS held,
                count(*) FILTER (WHERE held_for_review OR status = 'PENDING') AS to_decide, min(created_at) AS oldest
         FROM page GROUP BY status ORDER BY status",
    )
    .bind(MOST + 1)
    .fetch_all(db)
    .await?;
    let mut open = OpenOrders { oldest: rows.iter().map(|row| row.oldest).min(), ..OpenOrders::default() };
    open.all = BoundedCount::new(rows.iter().map(|row| row.orders).sum());
    open.held = rows.iter().map(|row| row.held.unsigned_abs()).sum();
    open.to_decide = rows.iter().map(|row| row.to_decide.unsigned_abs()).sum();
    open.by_status = rows.into_iter().map(|row| (row.status, row.orders.unsigned_abs())).collect();
    Ok(open)
}

/// Money that is to go back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwedRefunds {
    pub all: BoundedCount,
    /// Support has begun them.
    pub started: u64,
    pub oldest: Option<DateTime<Utc>>,
    /// By currency, in its smallest unit.
    pub sums: Vec<(String, i64)>,
}

#[derive(sqlx::FromRow)]
struct RefundSum {
    currency: Option<String>,
    refunds: i64,
    started: i64,
    sum: Option<i64>,
    oldest: Option<DateTime<Utc>>,
}

/// Counts refunds that are owed or begun.
pub async fn count_refunds(db: &Pool) -> Result<OwedRefunds, sqlx::Error> {
    let rows: Vec<RefundSum> = sqlx::query_as(
        "-- glance at refunds
         WITH page AS MATERIALIZED (
             SELECT status, currency, amount_minor, closed_at FROM orders
             WHERE status IN ('CANCELLED_BY_SYSTEM_AFTER_PAYMENT', 'REFUND_PENDING')
                OR (status IN ('CANCELLED_BY_USER', 'CANCELLED_BY_DRIVER') AND payment_status IN ('PAID', 'SETTLEMENT'))
             ORDER BY closed_at, id LIMIT $1)
         SELECT currency, count(*) AS refunds, count(*) FILTER (WHERE status = 'REFUND_PENDING') AS started,
                sum(amount_minor)::bigint AS sum, min(closed_at) AS oldest
         FROM page GROUP BY currency ORDER BY currency",
    )
    .bind(MOST + 1)
    .fetch_all(db)
    .await?;
    Ok(OwedRefunds {
        all: BoundedCount::new(rows.iter().map(|row| row.refunds).sum()),
        started: rows.iter().map(|row| row.started.unsigned_abs()).sum(),
        oldest: rows.iter().filter_map(|row| row.oldest).min(),
        sums: rows.into_iter().filter_map(|row| row.currency.zip(row.sum)).collect(),
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

/// How all queues stood together at a time.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct QueuePoint {
    pub at: DateTime<Utc>,
    pub due: i64,
    pub dead: i64,
}

/// Returns how the queues stood in the last hour, the oldest first.
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

/// How all areas stood together at a time.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct AreaPoint {
    pub at: DateTime<Utc>,
    pub waiting: i64,
    /// Areas and service types whose threshold is reached.
    pub full: i64,
    /// Requests refused since the point before.
    pub rejected: i64,
}

/// Returns how the areas stood in the last hour, the oldest first.
pub async fn area_curve(db: &Pool) -> Result<Vec<AreaPoint>, sqlx::Error> {
    sqlx::query_as(
        "-- curve of areas
         SELECT at, sum(waiting)::bigint AS waiting, count(*) FILTER (WHERE waiting >= threshold) AS full,
                sum(rejected)::bigint AS rejected
         FROM waiting_snapshots
         WHERE at > (SELECT dispatchq_now()) - $1 * interval '1 second' GROUP BY at ORDER BY at LIMIT 1000",
    )
    .bind(CURVES.num_seconds())
    .fetch_all(db)
    .await
}

/// How the whole stood at a time.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct GlancePoint {
    pub at: DateTime<Utc>,
    pub open_orders: i64,
    /// Owed or begun; [`MOST`] at most.
    pub refunds_owed: i64,
    /// Of jobs that started since the last full hour began.
    pub lateness_p99_ms: i64,
}

/// Returns how the whole stood in the last hour, the oldest first.
pub async fn glance_curve(db: &Pool) -> Result<Vec<GlancePoint>, sqlx::Error> {
    sqlx::query_as(
        "-- curve of the whole
         SELECT at, open_orders, refunds_owed, lateness_p99_ms FROM glance_snapshots
         WHERE at > (SELECT dispatchq_now()) - $1 * interval '1 second' ORDER BY at LIMIT 1000",
    )
    .bind(CURVES.num_seconds())
    .fetch_all(db)
    .await
}

/// Keeps how the whole stands: so many open orders, a lateness of so many milliseconds, and the refunds that Postgres counts.
pub async fn save_glance(db: &Pool, open_orders: u64, lateness_p99_ms: u64) -> Result<(), sqlx::Error> {
    let refunds = count_refunds(db).await?;
    sqlx::query(
        "-- snapshot of the whole
         INSERT INTO glance_snapshots (at, open_orders, refunds_owed, lateness_p99_ms)
         VALUES (dispatchq_now(), $1, $2, $3) ON CONFLICT DO NOTHING",
    )
    .bind(open_orders.cast_signed())
    .bind(refunds.all.rows.cast_signed())
    .bind(lateness_p99_ms.cast_signed())
    .execute(db)
    .await
    .map(drop)
}
