//! What became of the offers to one driver, the latest first, for the people who look after drivers.
//!
//! Offers go with their orders, so the list reaches back as far as orders are kept.

use chrono::{DateTime, TimeDelta, Utc};
use model::{ids::DriverId, order::OfferState};

use foundation::db::Pool;

/// Offers of each sort that are counted at most.
pub const MOST_COUNTED: i64 = 10_000;

/// An offer as its driver's page shows it.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct DriverOffer {
    pub order_id: String,
    pub attempt_no: i32,
    pub state: OfferState,
    /// Metres between driver and pickup; `None`: erased with its customer, or not measured.
    pub distance_m: Option<f64>,
    pub offered_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    /// When it ended; `None`: the driver is being asked.
    pub responded_at: Option<DateTime<Utc>>,
    /// What the driver or the system said of its end, if anything.
    pub reason: Option<String>,
}

/// Returns the latest offers to a driver: those that wait for an answer, then the others, the latest end first.
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

/// Counts the offers to a driver that ended within this time, by how they ended; of each sort at most [`MOST_COUNTED`]. Ends that no
/// offer came to are left out.
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
