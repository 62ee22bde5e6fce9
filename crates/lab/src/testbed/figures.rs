//! Figures of a run from its history.

use std::collections::BTreeMap;

use foundation::db::Pool;
use queue::Store;
use serde::Serialize;

/// Lateness of jobs in milliseconds of real time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct JobLateness {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
    /// Number of jobs that ran.
    pub(crate) jobs: u64,
}

/// Final statuses of orders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OrderOutcomes {
    pub(crate) orders: u64,
    /// Orders by status.
    pub(crate) by_status: BTreeMap<String, u64>,
    /// Orders among these that wait for a person's decision.
    pub(crate) held: u64,
}

pub(crate) async fn count_outcomes(db: &Pool) -> Result<OrderOutcomes, sqlx::Error> {
    let rows: Vec<(String, i64, i64)> = sqlx::query_as(
        "-- outcomes
         SELECT status, count(*), count(*) FILTER (WHERE held_for_review) FROM orders GROUP BY status",
    )
    .fetch_all(db)
    .await?;
    Ok(OrderOutcomes {
        orders: rows.iter().map(|(_, count, _)| count.unsigned_abs()).sum(),
        held: rows.iter().map(|(_, _, held)| held.unsigned_abs()).sum(),
        by_status: rows.into_iter().map(|(status, count, _)| (status, count.unsigned_abs())).collect(),
    })
}

/// Counts delivered alerts by channel. Messages to drivers, customers and producers are not alerts.
pub(crate) async fn count_delivered_alerts(db: &Pool) -> Result<BTreeMap<String, u64>, sqlx::Error> {
    let rows: Vec<(String, i64)> = sqlx::query_as(
        "-- alerts by channel
         SELECT channel, count(*) FROM outbox m
         WHERE state = 'delivered'
           AND EXISTS (SELECT 1 FROM alerts a WHERE a.order_id = m.order_id AND a.kind = m.kind)
         GROUP BY channel",
    )
    .fetch_all(db)
    .await?;
    Ok(collect_counts(rows))
}

/// Counts bookings by state.
pub(crate) async fn count_bookings(db: &Pool) -> Result<BTreeMap<String, u64>, sqlx::Error> {
    let rows: Vec<(String, i64)> = sqlx::query_as(
        "-- bookings by state
         SELECT state, count(*) FROM bookings GROUP BY state",
    )
    .fetch_all(db)
    .await?;
    Ok(collect_counts(rows))
}

/// Counts timers that the reconciler enqueued again or moved.
pub(crate) async fn count_repairs(db: &Pool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "-- repairs
         SELECT coalesce(sum(inserted + moved), 0)::bigint FROM reconcile_log",
    )
    .fetch_one(db)
    .await
}

/// Reads the lateness of all jobs of the last day.
pub(crate) async fn read_lateness(store: &Store) -> anyhow::Result<JobLateness> {
    let late = store.read_lateness().await?;
    Ok(JobLateness { p50: late.p50_ms, p99: late.p99_ms, max: late.max_ms, jobs: late.count })
}

fn collect_counts(rows: Vec<(String, i64)>) -> BTreeMap<String, u64> {
    rows.into_iter().map(|(name, count)| (name, count.unsigned_abs())).collect()
}
