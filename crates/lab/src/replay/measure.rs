//! Figures of a replay, read from the history at its end.

use std::collections::BTreeMap;

use serde::Serialize;
use sqlx::Row;

use crate::testbed::figures::{self, JobLateness, OrderOutcomes};
use foundation::db::Pool;
use queue::Store;

/// Time to a driver in seconds of simulated time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct TimeToDriver {
    /// `None` if no order had a driver.
    pub(super) p50: Option<f64>,
    pub(super) p95: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReplayMeasures {
    pub(super) outcomes: OrderOutcomes,
    /// Orders by number of attempts.
    pub(super) attempts: BTreeMap<i32, u64>,
    pub(super) time_to_driver: TimeToDriver,
    pub(super) lateness: JobLateness,
    /// Timers that the reconciler enqueued again or moved.
    pub(super) repairs: i64,
    /// Delivered alerts by channel.
    pub(super) alerts: BTreeMap<String, u64>,
    /// Bookings by state.
    pub(super) bookings: BTreeMap<String, u64>,
}

impl ReplayMeasures {
    /// Reads the figures. `speed` converts real time to simulated time.
    pub(super) async fn read_measures(db: &Pool, store: &Store, speed: f64) -> anyhow::Result<Self> {
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
        let in_order_time = |wall_s: Option<f64>| wall_s.map(|s| (s * speed * 10.0).round() / 10.0);
        Ok(Self {
            outcomes: figures::count_outcomes(db).await?,
            attempts: attempts.into_iter().map(|(n, orders)| (n, orders.unsigned_abs())).collect(),
            time_to_driver: TimeToDriver {
                p50: in_order_time(to_driver.try_get("p50")?),
                p95: in_order_time(to_driver.try_get("p95")?),
            },
            lateness: figures::read_lateness(store).await?,
            repairs: figures::count_repairs(db).await?,
            alerts: figures::count_delivered_alerts(db).await?,
            bookings: figures::count_bookings(db).await?,
        })
    }
}
