//! Drivers: where they are, what they drive for, and whether they want work.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

/// A driver as imported, one JSON object per line.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NewDriver {
    pub id: String,
    pub service_types: Vec<String>,
    pub latitude: f64,
    pub longitude: f64,
    #[serde(default = "yes")]
    pub available: bool,
}

fn yes() -> bool {
    true
}

impl NewDriver {
    /// What is wrong with it, if anything.
    pub fn problem(&self) -> Option<String> {
        let id_fits = (1..=64).contains(&self.id.len())
            && self.id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if !id_fits {
            Some(format!("id '{}' must be 1 to 64 letters, digits, '_' or '-'", self.id))
        } else if self.service_types.is_empty() {
            Some("service_types must name at least one".to_owned())
        } else if !(-90.0..=90.0).contains(&self.latitude) || !(-180.0..=180.0).contains(&self.longitude) {
            Some(format!("{}, {} is no place on earth", self.latitude, self.longitude))
        } else {
            None
        }
    }
}

#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct Driver {
    pub id: String,
    pub service_types: Vec<String>,
    pub lat: f64,
    pub lng: f64,
    pub available: bool,
    pub idle_since: DateTime<Utc>,
    /// The order that occupies the driver.
    pub active_order: Option<String>,
}

/// Adds drivers, or brings those that exist up to date. All or none.
pub async fn import(db: &PgPool, drivers: &[NewDriver]) -> Result<u64, sqlx::Error> {
    let mut tx = db.begin().await?;
    for driver in drivers {
        sqlx::query(
            "-- import driver
             INSERT INTO drivers (id, service_types, lat, lng, available) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (id) DO UPDATE SET service_types = excluded.service_types, lat = excluded.lat,
                 lng = excluded.lng, available = excluded.available, updated_at = dispatchq_now()",
        )
        .bind(&driver.id)
        .bind(&driver.service_types)
        .bind(driver.latitude)
        .bind(driver.longitude)
        .bind(driver.available)
        .execute(&mut *tx)
        .await?;
    }
    tx.commit().await?;
    Ok(drivers.len() as u64)
}

pub async fn list(db: &PgPool, limit: u32) -> Result<Vec<Driver>, sqlx::Error> {
    sqlx::query_as(
        "-- list drivers
         SELECT d.id, d.service_types, d.lat, d.lng, d.available, d.idle_since, o.id AS active_order
         FROM drivers d
         LEFT JOIN orders o ON o.driver_id = d.id AND o.status IN ('DRIVER_ASSIGNED', 'PICKED_UP')
         ORDER BY d.id LIMIT $1",
    )
    .bind(i64::from(limit))
    .fetch_all(db)
    .await
}

pub async fn exists(db: &PgPool, id: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "-- driver exists
                        SELECT EXISTS (SELECT 1 FROM drivers WHERE id = $1)",
    )
    .bind(id)
    .fetch_one(db)
    .await
}
