//! Search by any id, for the field in the frame of every page of the console.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use model::{
    ids::{PartnerName, ServiceType},
    order::OrderStatus,
};
use sqlx::types::Json;

use foundation::db::Pool;

/// Maximum orders that are found, for each kind of id and in all.
pub const MOST: i64 = 50;

/// Text of the search.
#[derive(Debug, Clone, Default)]
pub struct WantedIds {
    /// Exact id of an order, a job or booking at a partner, a customer, a driver or a binding.
    pub id: String,
    /// Partners whose bookings are searched.
    pub partners: Vec<PartnerName>,
    /// Metadata of orders. An order is found if it has all pairs of one of these maps.
    pub metadata: Vec<BTreeMap<String, String>>,
}

/// An order that was found.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct FoundOrder {
    pub id: String,
    /// Kind of the id: `id`, `job`, `booking`, `customer`, `driver` or `metadata`.
    pub how: Vec<String>,
    pub status: OrderStatus,
    pub service_type: ServiceType,
    pub created_at: DateTime<Utc>,
}

/// Whether a driver, and a binding, with the id exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct FoundOthers {
    pub driver: bool,
    pub binding: bool,
}

/// Returns the orders that are found, the newest first, at most [`MOST`].
pub async fn find_orders(db: &Pool, wanted: &WantedIds) -> Result<Vec<FoundOrder>, sqlx::Error> {
    let partners: Vec<&str> = wanted.partners.iter().map(PartnerName::as_str).collect();
    let metadata: Vec<_> = wanted.metadata.iter().map(Json).collect();
    sqlx::query_as(include_str!("find_orders.sql"))
        .bind(&wanted.id)
        .bind(partners)
        .bind(metadata)
        .bind(MOST)
        .fetch_all(db)
        .await
}

/// Returns whether a driver or a binding has the id.
pub async fn find_others(db: &Pool, id: &str) -> Result<FoundOthers, sqlx::Error> {
    sqlx::query_as(
        "-- find driver or binding by id
         SELECT EXISTS (SELECT FROM drivers WHERE id = $1) AS driver,
                EXISTS (SELECT FROM bindings WHERE id = $1) AS binding",
    )
    .bind(id)
    .fetch_one(db)
    .await
}
