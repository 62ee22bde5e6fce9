//! The live offers of a driver.

use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use crate::db::Pool;

/// A live offer, as its driver sees it.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema, sqlx::FromRow)]
#[schema(as = Offer)]
pub struct LiveOffer {
    pub offer_id: Uuid,
    pub order_id: String,
    pub service_type: String,
    pub attempt_no: i32,
    pub distance_m: Option<f64>,
    pub pickup_latitude: f64,
    pub pickup_longitude: f64,
    pub offered_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
}

/// What a driver is being asked, the oldest first.
pub async fn live_offers(db: &Pool, driver: &str) -> Result<Vec<LiveOffer>, sqlx::Error> {
    sqlx::query_as(
        "-- live offers
         SELECT f.id AS offer_id, f.order_id, o.service_type, f.attempt_no, f.distance_m, o.pickup_lat AS pickup_latitude,
                o.pickup_lng AS pickup_longitude, f.offered_at, f.expires_at
         FROM offers f JOIN orders o ON o.id = f.order_id
         WHERE f.driver_id = $1 AND f.state = 'offered' AND f.expires_at > dispatchq_now()
         ORDER BY f.offered_at, f.id",
    )
    .bind(driver)
    .fetch_all(db)
    .await
}
