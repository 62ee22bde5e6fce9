//! Orders as rows.
//!
//! * [`write`]: writes a change. The only code that writes to `orders`. `offers`: the offers that a change makes and ends.
//! * Here: loads an order with all that decisions look at.

mod offers;
pub mod write;

use jobs::OrderId;
use model::{
    ids::OfferId,
    order::{Booking, KnownPayment, Offer, Order, PendingAlert, PendingCallback, PendingMessage, Snapshot},
};
use sqlx::{FromRow, PgExecutor, postgres::PgRow, types::Json};

/// The order with all that decisions look at and the time, read in one statement.
pub async fn load_order(db: impl PgExecutor<'_>, id: &OrderId) -> Result<Option<Snapshot>, sqlx::Error> {
    load_order_with(db, id, None).await
}

/// As [`load_order`], with this offer, however old it is. Of the others only those count that are live or accepted, or of the
/// running attempt: an order that was offered to a hundred drivers ten times over is loaded as quickly as any other.
///
/// Columns are named one by one: a new one must not change what a prepared statement of a running process returns.
pub(super) async fn load_order_with(
    db: impl PgExecutor<'_>,
    id: &OrderId,
    offer: Option<OfferId>,
) -> Result<Option<Snapshot>, sqlx::Error> {
    let row = sqlx::query(
        "-- load order
         SELECT o.id, o.service_type, o.area_id, o.customer_id, o.pickup_lat, o.pickup_lng, o.amount_minor, o.currency,
                o.payment_status, o.status, o.partner, o.job_id, o.driver_id, o.former_drivers, o.attempt_no, o.round,
                o.attempt_deadline, o.next_attempt_at, o.poll_no, o.next_poll_at, o.lifetime_deadline, o.lifetime_waived,
                o.trip_deadline, o.held_for_review, o.held_reason, o.hold_cause, o.version, o.created_at, o.updated_at, o.closed_at,
                o.owner,
                dispatchq_now() AS now,
                (SELECT coalesce(json_agg(json_build_object(
                            'id', f.id, 'attempt_no', f.attempt_no, 'round', f.round, 'driver_id', f.driver_id,
                            'state', f.state, 'offered_at', f.offered_at, 'expires_at', f.expires_at)
                            ORDER BY f.attempt_no, f.offered_at, f.rank), '[]')
                 FROM offers f
                 WHERE f.order_id = o.id
                   AND (f.attempt_no = o.attempt_no OR f.state IN ('offered', 'accepted') OR f.id = $2)) AS offers,
                (SELECT coalesce(json_agg(b ORDER BY b.attempt_no), '[]') FROM bookings b
                 WHERE b.order_id = o.id) AS bookings,
                (SELECT coalesce(json_agg(json_build_object('id', m.id, 'next_attempt_at', m.next_attempt_at)
                                          ORDER BY m.id), '[]')
                 FROM outbox m WHERE m.order_id = o.id AND m.state = 'pending') AS messages,
                (SELECT coalesce(json_agg(json_build_object('id', a.id, 'kind', a.kind,
                                                            'next_escalation_at', a.next_escalation_at)
                                          ORDER BY a.id), '[]')
                 FROM alerts a WHERE a.order_id = o.id AND a.next_escalation_at IS NOT NULL AND a.gave_up_at IS NULL) AS alerts,
                (SELECT coalesce(json_agg(json_build_object('id', i.id, 'received_at', i.received_at)
                                          ORDER BY i.id), '[]')
                 FROM inbox i WHERE i.order_id = o.id AND i.state = 'pending') AS callbacks,
                (SELECT coalesce(json_agg(p ORDER BY p.received_at), '[]') FROM payment_events p
                 WHERE p.order_id = o.id) AS payments
         FROM orders o WHERE o.id = $1",
    )
    .bind(id.as_str())
    .bind(offer)
    .fetch_optional(db)
    .await?;
    row.as_ref().map(snapshot_from_row).transpose()
}

pub(super) fn snapshot_from_row(row: &PgRow) -> Result<Snapshot, sqlx::Error> {
    use sqlx::Row;
    Ok(Snapshot {
        order: Order::from_row(row)?,
        offers: row.try_get::<Json<Vec<Offer>>, _>("offers")?.0,
        bookings: row.try_get::<Json<Vec<Booking>>, _>("bookings")?.0,
        messages: row.try_get::<Json<Vec<PendingMessage>>, _>("messages")?.0,
        alerts: row.try_get::<Json<Vec<PendingAlert>>, _>("alerts")?.0,
        callbacks: row.try_get::<Json<Vec<PendingCallback>>, _>("callbacks")?.0,
        payments: row.try_get::<Json<Vec<KnownPayment>>, _>("payments")?.0,
        now: row.try_get("now")?,
    })
}
