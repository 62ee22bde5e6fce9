//! Reads the contents of orders (`order_details`). [`create`](crate::create) and [`contents`](crate::contents) write
//! them.

use std::collections::HashMap;

use foundation::{
    db::Pool,
    staff_actions::{ActionAuthor, ActionValues, StaffAction, record_action},
};
use jobs::OrderId;
use model::{
    details::{Contact, EventContents, EventPickup, OrderDetails, OrderPlace},
    ids::LatLng,
    order::Order,
    order_patch::OrderContents,
};
use serde_json::Value;
use sqlx::{FromRow, PgExecutor, Row, postgres::PgRow, types::Json};

/// Returns the contents of the order; empty if it has none.
pub async fn load_details(db: impl PgExecutor<'_>, order: &Order) -> Result<OrderDetails, sqlx::Error> {
    let mut found = load_all_details(db, [order]).await?;
    Ok(found.remove(&order.id).unwrap_or_default())
}

/// Contents of an order, as read with their version.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredContents {
    pub contents: OrderContents,
    /// Incremented by every change of the contents.
    pub version: i64,
}

/// Returns the contents of the order with their version. They include the pickup location, which may be newer than that
/// of `order`. An order without contents needs no statement.
pub async fn load_contents(db: impl PgExecutor<'_>, order: &Order) -> Result<StoredContents, sqlx::Error> {
    let none = StoredContents {
        contents: OrderContents { pickup: order.pickup(), details: OrderDetails::default() },
        version: 0,
    };
    if !order.has_details {
        return Ok(none);
    }
    let row = sqlx::query(
        "-- load contents
         SELECT d.order_id, d.pickup_address, d.dropoff_lat, d.dropoff_lng, d.dropoff_address, d.notes, d.contact,
                d.metadata, d.requires, d.version, o.pickup_lat, o.pickup_lng
         FROM order_details d JOIN orders o ON o.id = d.order_id WHERE d.order_id = $1",
    )
    .bind(order.id.as_str())
    .fetch_optional(db)
    .await?;
    let Some(row) = row else { return Ok(none) };
    let pickup = LatLng::new(row.try_get("pickup_lat")?, row.try_get("pickup_lng")?);
    let DetailsRow(_, details) = DetailsRow::from_row(&row)?;
    Ok(StoredContents { contents: OrderContents { pickup, details }, version: row.try_get("version")? })
}

/// Returns the contents of the order, and the places that the booking request of this attempt had, if the order was
/// changed since. One statement reads both, so that they agree.
pub async fn load_booked_contents(
    db: impl PgExecutor<'_>,
    order: &Order,
    attempt_no: i32,
) -> Result<(Option<Value>, OrderContents), sqlx::Error> {
    let row = sqlx::query(
        "-- load booked contents
         SELECT d.order_id, d.pickup_address, d.dropoff_lat, d.dropoff_lng, d.dropoff_address, d.notes, d.contact,
                d.metadata, d.requires, o.pickup_lat, o.pickup_lng, b.places
         FROM orders o JOIN order_details d ON d.order_id = o.id
         LEFT JOIN bookings b ON b.order_id = o.id AND b.attempt_no = $2
         WHERE o.id = $1",
    )
    .bind(order.id.as_str())
    .bind(attempt_no)
    .fetch_one(db)
    .await?;
    let pickup = LatLng::new(row.try_get("pickup_lat")?, row.try_get("pickup_lng")?);
    let DetailsRow(_, details) = DetailsRow::from_row(&row)?;
    Ok((row.try_get("places")?, OrderContents { pickup, details }))
}

/// Returns the contents of those orders that have any. Runs no statement if none has.
pub async fn load_all_details<'a>(
    db: impl PgExecutor<'_>,
    orders: impl IntoIterator<Item = &'a Order>,
) -> Result<HashMap<OrderId, OrderDetails>, sqlx::Error> {
    let ids: Vec<&str> = orders.into_iter().filter(|order| order.has_details).map(|order| order.id.as_str()).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<DetailsRow> = sqlx::query_as(
        "-- load details
         SELECT order_id, pickup_address, dropoff_lat, dropoff_lng, dropoff_address, notes, contact, metadata,
                requires
         FROM order_details WHERE order_id = ANY ($1)",
    )
    .bind(ids)
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|DetailsRow(id, details)| (id, details)).collect())
}

/// Returns the contents of these orders for events, by order. Erased orders have none.
pub(crate) async fn load_event_contents(
    db: impl PgExecutor<'_>,
    orders: &[&str],
) -> Result<HashMap<String, EventContents>, sqlx::Error> {
    let rows = sqlx::query(
        "-- load contents for events
         SELECT order_id, pickup_address, dropoff_lat, dropoff_lng, dropoff_address, metadata
         FROM order_details WHERE order_id = ANY ($1) AND erased_at IS NULL",
    )
    .bind(orders)
    .fetch_all(db)
    .await?;
    rows.iter().map(event_contents_of).collect()
}

fn event_contents_of(row: &PgRow) -> Result<(String, EventContents), sqlx::Error> {
    let pickup = EventPickup { address: row.try_get("pickup_address")? };
    let Json(metadata) = row.try_get("metadata")?;
    Ok((row.try_get("order_id")?, EventContents { pickup, dropoff: read_dropoff(row)?, metadata }))
}

/// Returns the contact of an order and records that the actor read it. Returns `None` if the order does not exist, and
/// an empty contact if it has none.
pub async fn reveal_contact(db: &Pool, order: &OrderId, by: ActionAuthor<'_>) -> Result<Option<Contact>, sqlx::Error> {
    let mut tx = db.begin().await?;
    let found: Option<(Option<Json<Contact>>,)> = sqlx::query_as(
        "-- contact of order
         SELECT d.contact FROM orders o LEFT JOIN order_details d ON d.order_id = o.id WHERE o.id = $1",
    )
    .bind(order.as_str())
    .fetch_optional(&mut *tx)
    .await?;
    let Some((contact,)) = found else { return Ok(None) };
    record_action(&mut tx, by, StaffAction::ContactViewed, order.as_str(), ActionValues::default()).await?;
    tx.commit().await?;
    Ok(Some(contact.map(|Json(contact)| contact).unwrap_or_default()))
}

/// Reads the destination from the columns `dropoff_lat`, `dropoff_lng` and `dropoff_address`.
pub(crate) fn read_dropoff(row: &PgRow) -> Result<Option<OrderPlace>, sqlx::Error> {
    Ok(match (row.try_get("dropoff_lat")?, row.try_get("dropoff_lng")?) {
        (Some(lat), Some(lng)) => Some(OrderPlace::new(LatLng::new(lat, lng), row.try_get("dropoff_address")?)),
        _ => None,
    })
}

struct DetailsRow(OrderId, OrderDetails);

impl FromRow<'_, PgRow> for DetailsRow {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        let id: String = row.try_get("order_id")?;
        let contact: Option<Json<Contact>> = row.try_get("contact")?;
        let Json(metadata) = row.try_get("metadata")?;
        let details = OrderDetails {
            pickup_address: row.try_get("pickup_address")?,
            dropoff: read_dropoff(row)?,
            notes: row.try_get("notes")?,
            contact: contact.map(|Json(contact)| contact),
            metadata,
            requires: row.try_get::<Vec<String>, _>("requires")?.into_iter().collect(),
        };
        let id = id.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        Ok(Self(id, details))
    }
}
