//! The live offers of a driver.

use chrono::{DateTime, Utc};
use model::{
    details::OrderPlace,
    ids::{DriverId, LatLng, OfferId, ServiceType},
    skills::SkillSchema,
};
use serde::Serialize;
use sqlx::{FromRow, Row, postgres::PgRow};

use crate::details::read_dropoff;
use foundation::db::Pool;

/// A live offer, as its driver sees it.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = Offer)]
pub struct LiveOffer {
    #[schema(value_type = uuid::Uuid)]
    pub offer_id: OfferId,
    pub order_id: String,
    #[schema(value_type = String)]
    pub service_type: ServiceType,
    pub attempt_no: i32,
    pub distance_m: Option<f64>,
    pub pickup: OrderPlace,
    /// Same as in `pickup`; kept for older apps.
    #[schema(deprecated)]
    pub pickup_latitude: f64,
    /// Same as in `pickup`; kept for older apps.
    #[schema(deprecated)]
    pub pickup_longitude: f64,
    /// Destination; absent if the producer sent none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub dropoff: Option<OrderPlace>,
    /// Notes for the driver; absent if the producer sent none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub notes: Option<String>,
    /// Labels that the order requires; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<SkillSchema>, required = false)]
    pub requires: Vec<String>,
    pub offered_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    /// Increases when the pickup, the destination or the notes of the order change.
    pub version: i32,
}

impl FromRow<'_, PgRow> for LiveOffer {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        let (pickup_latitude, pickup_longitude) = (row.try_get("pickup_lat")?, row.try_get("pickup_lng")?);
        let pickup = LatLng::new(pickup_latitude, pickup_longitude);
        Ok(Self {
            offer_id: row.try_get("offer_id")?,
            order_id: row.try_get("order_id")?,
            service_type: row.try_get("service_type")?,
            attempt_no: row.try_get("attempt_no")?,
            distance_m: row.try_get("distance_m")?,
            pickup: OrderPlace::new(pickup, row.try_get("pickup_address")?),
            pickup_latitude,
            pickup_longitude,
            dropoff: read_dropoff(row)?,
            notes: row.try_get("notes")?,
            requires: row.try_get::<Option<Vec<String>>, _>("requires")?.unwrap_or_default(),
            offered_at: row.try_get("offered_at")?,
            expires_at: row.try_get("expires_at")?,
            version: row.try_get("version")?,
        })
    }
}

/// Returns the live offers of a driver, the oldest first.
pub async fn live_offers(db: &Pool, driver: &DriverId) -> Result<Vec<LiveOffer>, sqlx::Error> {
    sqlx::query_as(
        "-- live offers
         SELECT f.id AS offer_id, f.order_id, o.service_type, f.attempt_no, f.distance_m, o.pickup_lat, o.pickup_lng,
                d.pickup_address, d.dropoff_lat, d.dropoff_lng, d.dropoff_address, d.notes, d.requires, f.offered_at,
                f.expires_at, f.version
         FROM offers f JOIN orders o ON o.id = f.order_id
         LEFT JOIN order_details d ON o.has_details AND d.order_id = o.id
         WHERE f.driver_id = $1 AND f.state = 'offered' AND f.expires_at > dispatchq_now()
         ORDER BY f.offered_at, f.id",
    )
    .bind(driver)
    .fetch_all(db)
    .await
}
