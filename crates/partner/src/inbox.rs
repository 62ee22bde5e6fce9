//! Stores callbacks of partners. A callback is stored with its change, or before it is processed, so that an
//! acknowledged callback is never lost. An event that is delivered repeatedly has only one row.

use jobs::OrderId;
use model::ids::PartnerName;
use serde_json::Value;

use foundation::db::Pool;
use model::partner::{BookingReference, observation::CallbackBody};
pub use orders::order_store::inbox::{CallbackState, InboxRow};
use orders::order_store::{OrderStore, inbox::NewCallback};

/// Stores a callback, or returns the row that was stored before. Its order is found by the booking, or by our
/// reference, because a callback may arrive before the response that names the booking.
pub async fn store_callback(
    orders: &OrderStore,
    partner: &PartnerName,
    body: &CallbackBody,
    raw: &Value,
) -> Result<InboxRow, sqlx::Error> {
    orders.store_callback(new_callback(partner, body, raw)).await
}

/// Stores a callback as ignored, if the order that our reference names still has this version.
pub(super) async fn store_ignored(
    orders: &OrderStore,
    partner: &PartnerName,
    body: &CallbackBody,
    raw: &Value,
    (why, version): (&'static str, i64),
) -> Result<InboxRow, sqlx::Error> {
    let ignored = NewCallback { ignored: Some(why), ignored_at: Some(version), ..new_callback(partner, body, raw) };
    orders.store_callback(ignored).await
}

/// Stores a callback as ignored because this version does not know its type. The order does not matter.
pub async fn store_unknown(
    orders: &OrderStore,
    partner: &PartnerName,
    body: &CallbackBody,
    raw: &Value,
) -> Result<InboxRow, sqlx::Error> {
    let ignored = NewCallback { ignored: Some("unknown type"), ..new_callback(partner, body, raw) };
    orders.store_callback(ignored).await
}

fn new_callback(partner: &PartnerName, body: &CallbackBody, raw: &Value) -> NewCallback {
    NewCallback {
        partner: partner.clone(),
        event_id: body.event_id.clone(),
        booking_id: body.booking_id.clone(),
        referred: body.reference.as_deref().and_then(BookingReference::order_in),
        ignored: None,
        ignored_at: None,
        body: raw.clone(),
    }
}

/// Returns the partner and the body of a callback that is still pending.
pub(super) async fn load_pending(
    db: &Pool,
    id: i64,
    order: &OrderId,
) -> Result<Option<(PartnerName, Value)>, sqlx::Error> {
    sqlx::query_as(
        "-- pending callback
         SELECT partner, body FROM inbox WHERE id = $1 AND order_id = $2 AND state = 'pending'",
    )
    .bind(id)
    .bind(order.as_str())
    .fetch_optional(db)
    .await
}
