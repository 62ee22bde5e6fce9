//! Drivers on duty, and waiting and running orders, for the map of the fleet. Each statement reads at most [`MOST`] rows
//! through an index, so the map of a large fleet is cut and reports this.

use model::{
    ids::{DriverId, LatLng},
    order::OrderStatus,
};

use foundation::db::Pool;

/// Maximum drivers, and maximum open orders, that are read.
pub const MOST: i64 = 10_000;

/// A part of the earth, in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MapBounds {
    pub south: f64,
    pub west: f64,
    pub north: f64,
    pub east: f64,
}

impl MapBounds {
    pub const EARTH: Self = Self { south: -90.0, west: -180.0, north: 90.0, east: 180.0 };
}

/// Rows of the map.
#[derive(Debug, Clone, PartialEq)]
pub struct MapRows<T> {
    pub rows: Vec<T>,
    /// Whether there are more than [`MOST`], so that some are missing.
    pub is_cut: bool,
}

/// A driver on duty.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct MapDriver {
    pub id: DriverId,
    pub lat: f64,
    pub lng: f64,
    pub active_order: Option<String>,
}

/// An order that waits for a driver, or that a driver carries out.
#[derive(Debug, Clone, PartialEq)]
pub struct MapOrder {
    pub id: String,
    pub status: OrderStatus,
    pub pickup: LatLng,
    /// Driver of our own fleet who carries the order out.
    pub driver: Option<DriverId>,
}

/// Returns the drivers on duty in a part of the earth. If there are more than [`MOST`], the southernmost are returned.
pub async fn list_drivers(db: &Pool, bounds: &MapBounds) -> Result<MapRows<MapDriver>, sqlx::Error> {
    let mut rows: Vec<MapDriver> = sqlx::query_as(
        "-- drivers of the fleet map
         SELECT d.id, d.lat, d.lng, o.id AS active_order
         FROM (SELECT id, lat, lng FROM drivers
               WHERE available AND lat BETWEEN $1 AND $3 AND lng BETWEEN $2 AND $4 ORDER BY lat, lng LIMIT $5) d
         LEFT JOIN orders o ON o.driver_id = d.id AND o.on_trip AND o.partner IS NULL",
    )
    .bind(bounds.south)
    .bind(bounds.west)
    .bind(bounds.north)
    .bind(bounds.east)
    .bind(MOST + 1)
    .fetch_all(db)
    .await?;
    let most = usize::try_from(MOST).unwrap_or(usize::MAX);
    let is_cut = rows.len() > most;
    rows.truncate(most);
    Ok(MapRows { rows, is_cut })
}

/// A row of [`list_orders`]. Without an order in the part of the earth, one row has the number alone.
#[derive(sqlx::FromRow)]
struct MapOrderRow {
    /// Open orders that were read.
    read: i64,
    id: Option<String>,
    status: Option<OrderStatus>,
    lat: Option<f64>,
    lng: Option<f64>,
    driver: Option<DriverId>,
}

/// Returns the waiting and running orders with a pickup in a part of the earth. Only the newest [`MOST`] open orders are
/// read, wherever their pickup is.
pub async fn list_orders(db: &Pool, bounds: &MapBounds) -> Result<MapRows<MapOrder>, sqlx::Error> {
    let rows: Vec<MapOrderRow> = sqlx::query_as(include_str!("list_map_orders.sql"))
        .bind(bounds.south)
        .bind(bounds.west)
        .bind(bounds.north)
        .bind(bounds.east)
        .bind(MOST + 1)
        .fetch_all(db)
        .await?;
    let is_cut = rows.first().is_some_and(|row| row.read > MOST);
    let orders = rows.into_iter().filter_map(|row| {
        let pickup = LatLng::new(row.lat?, row.lng?);
        Some(MapOrder { id: row.id?, status: row.status?, pickup, driver: row.driver })
    });
    Ok(MapRows { rows: orders.collect(), is_cut })
}
