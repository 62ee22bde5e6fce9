//! What Postgres counts.

use chrono::{DateTime, Utc};

use crate::bench::statement_counts::read_statements;
use dispatch::db::Pool;

/// Names of the statements that look for drivers of orders, or for orders of drivers.
const SEARCHES: [&str; 5] = [
    "free drivers of waiting orders",
    "waiting orders of free drivers",
    "candidates",
    "free candidates",
    "drivers nearby",
];

/// Counts since the statistics were last reset, or ever.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct WorkCounts {
    pub(super) searches: i64,
    pub(super) statements: i64,
    /// Inserted, updated and deleted, in all tables.
    pub(super) rows: i64,
    /// Orders that wait for a driver.
    pub(super) waiting: i64,
}

/// Statements since the last reset, rows since the start.
pub(super) async fn read_counts(db: &Pool) -> anyhow::Result<WorkCounts> {
    let names = read_statements(db).await?;
    let rows = sqlx::query_scalar(
        "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint FROM pg_stat_user_tables",
    );
    let waiting =
        sqlx::query_scalar("SELECT count(*) FROM orders WHERE status = 'DISPATCHING' AND next_attempt_at IS NOT NULL");
    Ok(WorkCounts {
        searches: names.iter().filter(|(name, _)| SEARCHES.contains(&name.as_str())).map(|(_, calls)| calls).sum(),
        statements: names.iter().map(|(_, calls)| calls).sum(),
        rows: rows.fetch_one(db).await?,
        waiting: waiting.fetch_one(db).await?,
    })
}

/// Orders whose first search has not ended.
pub(super) async fn count_unsearched(db: &Pool) -> anyhow::Result<i64> {
    Ok(sqlx::query_scalar("SELECT count(*) FROM orders WHERE status = 'DISPATCHING' AND round = 1 AND attempt_no = 0")
        .fetch_one(db)
        .await?)
}

/// From the end of each trip of this time to the driver's next offer, in microseconds; of a driver without one to now.
///
/// `offered_at` is when the change was decided on, which may be some milliseconds before the trip ended: the search had read its order
/// by then, and the driver later. So the next offer is the one that was made next, and was made when its id says: ids are UUIDs of
/// version 7, of this machine's clock.
pub(super) async fn read_offer_waits(db: &Pool, from: DateTime<Utc>, to: DateTime<Utc>) -> anyhow::Result<Vec<i64>> {
    Ok(sqlx::query_scalar(
        "SELECT (coalesce(n.made_ms, extract(epoch FROM dispatchq_now()) * 1000)
                 - extract(epoch FROM o.closed_at) * 1000)::bigint * 1000
         FROM orders o
         JOIN offers a ON a.order_id = o.id AND a.state = 'accepted'
         LEFT JOIN LATERAL (SELECT ('x' || translate(left(f.id::text, 13), '-', ''))::bit(48)::bigint AS made_ms
                            FROM offers f WHERE f.driver_id = o.driver_id AND f.id > a.id ORDER BY f.id LIMIT 1) n ON true
         WHERE o.status = 'COMPLETED' AND o.closed_at >= $1 AND o.closed_at < $2",
    )
    .bind(from)
    .bind(to)
    .fetch_all(db)
    .await?)
}
