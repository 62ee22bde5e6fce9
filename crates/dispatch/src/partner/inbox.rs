//! Callbacks are stored before anything else happens, so that none is lost that we have said yes to; an event that comes
//! twice is one row.

use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::ids::PartnerName;
use serde::Serialize;
use serde_json::Value;

use super::{BookingReference, observation::CallbackBody};
use crate::db::Pool;

/// The state of a callback's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum CallbackState {
    /// Waits to be acted on.
    Pending,
    /// Acted on.
    Processed,
    /// Acted on, and it changed nothing.
    Ignored,
    /// Of a booking that is not known yet. It is pending once the booking is.
    Unmatched,
}

impl CallbackState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processed => "processed",
            Self::Ignored => "ignored",
            Self::Unmatched => "unmatched",
        }
    }
}

/// A callback as it lies in the inbox.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct InboxRow {
    pub id: i64,
    /// `None`: of a booking we do not know (yet).
    pub order_id: Option<String>,
    pub state: CallbackState,
    pub received_at: DateTime<Utc>,
    /// It had not come before.
    #[sqlx(default)]
    pub is_new: bool,
}

/// Stores a callback, or finds it stored before. Its order is found by the booking, or by our reference: a callback may be
/// quicker than the answer that names the booking.
pub async fn store_callback(
    db: &Pool,
    partner: &PartnerName,
    body: &CallbackBody,
    raw: &Value,
) -> Result<InboxRow, sqlx::Error> {
    let referred = body.reference.as_deref().and_then(BookingReference::order_in);
    let stored: Option<InboxRow> = sqlx::query_as(
        "-- store callback
         INSERT INTO inbox (partner, event_id, order_id, booking_id, body, state, received_at)
         SELECT $1, $2, found.id, $3, $5, CASE WHEN found.id IS NULL THEN 'unmatched' ELSE 'pending' END,
                dispatchq_now()
         FROM (SELECT coalesce((SELECT order_id FROM bookings WHERE partner = $1 AND booking_id = $3),
                               (SELECT order_id FROM bookings WHERE order_id = $4 AND partner = $1 LIMIT 1)) AS id) found
         ON CONFLICT (partner, event_id) DO NOTHING
         RETURNING id, order_id, state, received_at, true AS is_new",
    )
    .bind(partner)
    .bind(&body.event_id)
    .bind(&body.booking_id)
    .bind(referred.as_ref().map(OrderId::as_str))
    .bind(raw)
    .fetch_optional(db)
    .await?;
    match stored {
        Some(row) => Ok(row),
        None => {
            sqlx::query_as(
                "-- stored callback
                 SELECT id, order_id, state, received_at FROM inbox WHERE partner = $1 AND event_id = $2",
            )
            .bind(partner)
            .bind(&body.event_id)
            .fetch_one(db)
            .await
        }
    }
}

/// The partner's word, while it was not acted on.
pub(super) async fn load_pending(db: &Pool, id: i64, order: &OrderId) -> Result<Option<Value>, sqlx::Error> {
    sqlx::query_scalar(
        "-- pending callback
         SELECT body FROM inbox WHERE id = $1 AND order_id = $2 AND state = 'pending'",
    )
    .bind(id)
    .bind(order.as_str())
    .fetch_optional(db)
    .await
}

/// Nothing came of it.
pub(super) async fn ignore_callback(db: &Pool, id: i64, why: &str) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- ignore callback
         UPDATE inbox SET state = 'ignored', result = $2, processed_at = dispatchq_now()
         WHERE id = $1 AND state = 'pending'",
    )
    .bind(id)
    .bind(why)
    .execute(db)
    .await?;
    Ok(())
}
