//! The live offers of a driver.

use chrono::{DateTime, Utc};
use model::{
    ids::{DriverId, OfferId, ServiceType},
    location::OrderLocation,
};
use serde::Serialize;

use foundation::db::Pool;

/// A live offer, as its driver sees it.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema, sqlx::FromRow)]
#[schema(as = Offer)]
pub struct LiveOffer {
    #[schema(value_type = uuid::Uuid)]
    pub offer_id: OfferId,
    pub order_id: String,
    #[schema(value_type = String)]
    pub service_type: ServiceType,
    pub attempt_no: i32,
    pub distance_m: Option<f64>,
    #[sqlx(flatten)]
    pub pickup: OrderLocation,
    /// Same as in `pickup`; kept for older apps.
    #[schema(deprecated)]
    pub pickup_latitude: f64,
    /// Same as in `pickup`; kept for older apps.
    #[schema(deprecated)]
    pub pickup_longitude: f64,
    pub offered_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
}

/// Returns the live offers of a driver, the oldest first.
pub async fn live_offers(db: &Pool, driver: &DriverId) -> Result<Vec<LiveOffer>, sqlx::Error> {
    sqlx::query_as(
        "-- live offers
         SELECT f.id AS offer_id, f.order_id, o.service_type, f.attempt_no, f.distance_m, o.pickup_lat AS pickup_latitude,
                o.pickup_lng AS pickup_longitude, o.pickup_lat AS latitude, o.pickup_lng AS longitude, f.offered_at,
                f.expires_at
         FROM offers f JOIN orders o ON o.id = f.order_id
         WHERE f.driver_id = $1 AND f.state = 'offered' AND f.expires_at > dispatchq_now()
         ORDER BY f.offered_at, f.id",
    )
    .bind(driver)
    .fetch_all(db)
    .await
}
