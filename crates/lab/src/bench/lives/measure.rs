//! What the tables say of a run.

use serde::Serialize;
use workers::Store;

use crate::testbed::figures::{self, JobLateness, OrderOutcomes};
use foundation::db::Pool;

/// Of all orders, from the creation to the moment the first offer was made, in milliseconds by the tables' times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, sqlx::FromRow)]
pub(super) struct OfferDelay {
    pub(super) p50: Option<f64>,
    pub(super) p99: Option<f64>,
    pub(super) max: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct LifeMeasures {
    pub(super) outcomes: OrderOutcomes,
    /// Offers made: two for each life, if no driver was missing.
    pub(super) offers: i64,
    pub(super) offer_delay_ms: OfferDelay,
    pub(super) lateness: JobLateness,
    /// From the last order's creation to the last change, in seconds.
    pub(super) rest_s: Option<f64>,
    pub(super) repairs: i64,
}

impl LifeMeasures {
    pub(super) async fn read_measures(db: &Pool, store: &Store) -> anyhow::Result<Self> {
        let offer_delay_ms = sqlx::query_as(
            "-- from creation to the first offer
             SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS p50,
                    percentile_cont(0.99) WITHIN GROUP (ORDER BY ms) AS p99, max(ms) AS max
             FROM (SELECT extract(epoch FROM min(f.offered_at) - o.created_at)::float8 * 1000 AS ms
                   FROM orders o JOIN offers f ON f.order_id = o.id GROUP BY o.id) delays",
        )
        .fetch_one(db)
        .await?;
        let offers = sqlx::query_scalar("SELECT count(*) FROM offers").fetch_one(db).await?;
        let rest_s = sqlx::query_scalar(
            "-- from the last creation to the last end
             SELECT extract(epoch FROM max(closed_at) - max(created_at))::float8 FROM orders",
        )
        .fetch_one(db)
        .await?;
        Ok(Self {
            outcomes: figures::count_outcomes(db).await?,
            offers,
            offer_delay_ms,
            lateness: figures::read_lateness(store).await?,
            rest_s,
            repairs: figures::count_repairs(db).await?,
        })
    }
}
