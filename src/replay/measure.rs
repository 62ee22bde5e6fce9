//! The figures of a replay, read from the history when it is over.

use std::collections::BTreeMap;

use serde::Serialize;
use sqlx::{PgPool, Row};
use workers::Store;

/// Seconds of the order's time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct TimeToDriver {
    /// `None` when no order had a driver.
    pub(super) p50: Option<f64>,
    pub(super) p95: Option<f64>,
}

/// Milliseconds of wall time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Lateness {
    pub(super) p50: u64,
    pub(super) p99: u64,
    pub(super) max: u64,
    /// Jobs run.
    pub(super) jobs: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measures {
    pub(super) orders: u64,
    /// Orders by status.
    pub(super) outcomes: BTreeMap<String, u64>,
    pub(super) held: u64,
    /// Orders by number of attempts.
    pub(super) attempts: BTreeMap<i32, u64>,
    pub(super) time_to_driver: TimeToDriver,
    pub(super) lateness: Lateness,
    /// Timers the reconciler put back or moved.
    pub(super) repairs: i64,
}

impl Measures {
    /// `speed` turns wall time into the order's time.
    pub(super) async fn take(db: &PgPool, store: &Store, speed: f64) -> anyhow::Result<Self> {
        let outcomes: Vec<(String, i64, i64)> = sqlx::query_as(
            "-- replay outcomes
             SELECT status, count(*), count(*) FILTER (WHERE held_for_review) FROM orders GROUP BY status",
        )
        .fetch_all(db)
        .await?;
        let attempts: Vec<(i32, i64)> = sqlx::query_as(
            "-- replay attempts
             SELECT attempt_no, count(*) FROM orders GROUP BY attempt_no",
        )
        .fetch_all(db)
        .await?;
        let to_driver = sqlx::query(
            "-- replay time to driver
             SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY wall_s) AS p50,
                    percentile_cont(0.95) WITHIN GROUP (ORDER BY wall_s) AS p95
             FROM (SELECT extract(epoch FROM min(e.at) - min(o.created_at))::float8 AS wall_s
                   FROM order_events e JOIN orders o ON o.id = e.order_id
                   WHERE e.to_status = 'DRIVER_ASSIGNED' GROUP BY e.order_id) first",
        )
        .fetch_one(db)
        .await?;
        let repairs = sqlx::query_scalar(
            "-- replay repairs
             SELECT coalesce(sum(inserted + moved), 0)::bigint FROM reconcile_log",
        )
        .fetch_one(db)
        .await?;
        let late = store.lateness().await?;
        let in_order_time = |wall_s: Option<f64>| wall_s.map(|s| (s * speed * 10.0).round() / 10.0);
        Ok(Self {
            orders: outcomes.iter().map(|(_, count, _)| count.unsigned_abs()).sum(),
            held: outcomes.iter().map(|(_, _, held)| held.unsigned_abs()).sum(),
            outcomes: outcomes.into_iter().map(|(status, count, _)| (status, count.unsigned_abs())).collect(),
            attempts: attempts.into_iter().map(|(n, orders)| (n, orders.unsigned_abs())).collect(),
            time_to_driver: TimeToDriver {
                p50: in_order_time(to_driver.try_get("p50")?),
                p95: in_order_time(to_driver.try_get("p95")?),
            },
            lateness: Lateness { p50: late.p50_ms, p99: late.p99_ms, max: late.max_ms, jobs: late.count },
            repairs,
        })
    }
}
