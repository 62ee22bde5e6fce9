//! Offers to one driver and their results, the latest first, for staff.
//!
//! Offers are deleted with their orders, so the list goes back as far as orders are kept.

use chrono::{DateTime, TimeDelta, Utc};
use model::{ids::DriverId, order::OfferState};

use foundation::db::Pool;

/// Maximum offers counted per group of states.
pub const MOST_COUNTED: i64 = 10_000;

/// An offer on the driver's page.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct DriverOffer {
    pub order_id: String,
    pub attempt_no: i32,
    pub state: OfferState,
    /// Metres between driver and pickup. `None` if erased with the customer's data, or not measured.
    pub distance_m: Option<f64>,
    pub offered_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    /// End of the offer. `None` while the offer is live.
    pub responded_at: Option<DateTime<Utc>>,
    /// Reason for the end, from the driver or the system.
    pub reason: Option<String>,
}

/// Returns the latest offers to a driver: first the live ones, then the others, the latest end first.
pub async fn list_latest(db: &Pool, driver: &DriverId, limit: u32) -> Result<Vec<DriverOffer>, sqlx::Error> {
    sqlx::query_as(
        "-- latest offers of a driver
         SELECT order_id, attempt_no, state, distance_m, offered_at, expires_at, responded_at, reason FROM (
             (SELECT * FROM offers WHERE driver_id = $1 AND state = 'offered' ORDER BY slot LIMIT $2)
             UNION ALL
             (SELECT * FROM offers WHERE driver_id = $1 AND state IN ('declined', 'expired')
              ORDER BY responded_at DESC LIMIT $2)
             UNION ALL
             (SELECT * FROM offers WHERE driver_id = $1 AND state IN ('accepted', 'superseded', 'withdrawn')
              ORDER BY responded_at DESC LIMIT $2)) latest
         ORDER BY responded_at DESC NULLS FIRST, offered_at DESC, order_id LIMIT $2",
    )
    .bind(driver)
    .bind(i64::from(limit))
    .fetch_all(db)
    .await
}

/// Counts a driver's offers that ended within this time, by final state, at most [`MOST_COUNTED`] per group of states.
/// States without offers are omitted.
pub async fn count_ended(
    db: &Pool,
    driver: &DriverId,
    within: TimeDelta,
) -> Result<Vec<(OfferState, i64)>, sqlx::Error> {
    sqlx::query_as(
        "-- ended offers of a driver
         SELECT state, count(*) FROM (
             (SELECT state FROM offers WHERE driver_id = $1 AND state IN ('declined', 'expired')
                 AND responded_at > (SELECT dispatchq_now()) - $2 * interval '1 second' LIMIT $3)
             UNION ALL
             (SELECT state FROM offers WHERE driver_id = $1 AND state IN ('accepted', 'superseded', 'withdrawn')
                 AND responded_at > (SELECT dispatchq_now()) - $2 * interval '1 second' LIMIT $3)) ended
         GROUP BY state ORDER BY state",
    )
    .bind(driver)
    .bind(within.num_seconds())
    .bind(MOST_COUNTED)
    .fetch_all(db)
    .await
}
