//! Callbacks are stored with the change that they lead to, or before anything comes of them, so that none is lost that we have said
//! yes to; an event that comes twice is one row.

use jobs::OrderId;
use model::ids::PartnerName;
use serde_json::Value;

use foundation::db::Pool;
use model::partner::{BookingReference, observation::CallbackBody};
pub use orders::order_store::inbox::{CallbackState, InboxRow};
use orders::order_store::{OrderStore, inbox::NewCallback};

/// Stores a callback, or finds it stored before. Its order is found by the booking, or by our reference: a callback may be
/// quicker than the answer that names the booking.
pub async fn store_callback(
    orders: &OrderStore,
    partner: &PartnerName,
    body: &CallbackBody,
    raw: &Value,
) -> Result<InboxRow, sqlx::Error> {
    orders.store_callback(new_callback(partner, body, raw)).await
}

/// As [`store_callback`], of one of which nothing comes on this version of the order that our reference names.
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

/// As [`store_callback`], of an event of a type that this version does not know: whatever the order, it is ignored.
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

/// The partner and its word, while it was not acted on.
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
