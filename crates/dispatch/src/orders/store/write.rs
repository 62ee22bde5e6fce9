//! Writes a change: the only code that writes to `orders`.
//!
//! A change is written in one transaction, on the condition that the row still has the version the decision was made on.
//! Everything else is written only after the row was updated, so that its lock orders it: offers, events (whose `seq` so
//! orders the history of one order) and outbox rows. If the process dies before the commit nothing happened; if it dies after, the
//! follow-up jobs are missing and are put back by the repeated job or by the reconciler.

use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::{
    decide::{Change, OrderRefusal, change::OrderEvent},
    ids::OfferId,
    messages::{self, ChannelRoutes},
    order::{Booking, PendingCallback, Snapshot, state},
};
use sqlx::{PgExecutor, types::Json};

use super::offers::{end_offers, insert_offers, write_ranking};
use crate::{
    crash,
    db::Connection,
    notifications::{alerts, outbox},
};

/// Payment events kept of one order. An event older than so many others is taken for a new one when it comes again, and
/// changes nothing unless it supersedes the order's payment status.
const MAX_PAYMENT_EVENTS: usize = 100;
/// Why a change was not written.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Another transaction changed the order first, or took the driver: decide again.
    #[error("the order changed meanwhile")]
    Conflict,
    #[error(transparent)]
    Refused(#[from] OrderRefusal),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Writes a change on `db`: in a transaction of its own, or in the one that `db` is in.
pub(in crate::orders) async fn write_change(
    db: &mut Connection,
    routes: &ChannelRoutes,
    before: &Snapshot,
    change: &Change,
) -> Result<Snapshot, ApplyError> {
    for event in &change.events {
        // A decision that asks for an illegal transition is a bug of ours; better no change than a broken history.
        if !state::is_transition_allowed(Some(event.from), event.to) {
            return Err(OrderRefusal::Illegal { from: event.from, to: event.to }.into());
        }
    }
    let driver_is_free = frees_driver(before, change);
    let known = |b: &&Booking| before.booking_of_attempt(b.attempt_no).is_some_and(|b| b.booking_id.is_some());
    let newly_known: Vec<&Booking> =
        change.bookings.iter().filter(|b| b.booking_id.is_some()).filter(|b| !known(b)).collect();
    if change.is_core() && newly_known.is_empty() && !driver_is_free {
        // One statement is a transaction of its own.
        crash::reach_point("update", "commits");
        write_core(db, change).await?;
        crash::reach_point("update", "committed");
        return Ok(before.apply(change));
    }
    let mut tx = db.begin().await?;
    write_core(&mut tx, change).await?;
    end_offers(&mut tx, change).await?;
    let offered = insert_offers(&mut tx, change).await?;
    write_ranking(&mut tx, change).await?;
    let matched = match_callbacks(&mut tx, change, &newly_known).await?;
    write_payment_event(&mut tx, before, change).await?;
    if driver_is_free {
        sqlx::query(
            "-- free driver
             UPDATE drivers SET idle_since = $2, updated_at = $2 WHERE id = $1",
        )
        .bind(&before.order.driver_id)
        .bind(change.at)
        .execute(&mut *tx)
        .await?;
    }
    let (mut messages, mut alerts) = (before.messages.clone(), before.alerts.clone());
    for settlement in &change.settles {
        let settled = alerts::settle_alerts(&mut tx, &change.order.id, settlement, &change.actor).await?;
        alerts.retain(|a| !settled.contains(&a.id));
    }
    let mut to_tell = change.messages.clone();
    to_tell
        .extend(offered.iter().map(|(offer, distance_m)| messages::offer_created(&change.order, offer, *distance_m)));
    let written = outbox::insert_messages(&mut tx, routes, &change.order.id, &to_tell, change.at).await?;
    messages.extend(written.messages);
    alerts.extend(written.alerts);
    crash::reach_point("update", "commits");
    tx.commit().await?;
    crash::reach_point("update", "committed");

    let mut after = before.apply(change);
    after.offers.extend(offered.into_iter().map(|(offer, _)| offer));
    (after.messages, after.alerts) = (messages, alerts);
    after.callbacks.extend(matched);
    Ok(after)
}

/// An own driver has no order any more.
fn frees_driver(before: &Snapshot, change: &Change) -> bool {
    let leaves = before.order.status.occupies_driver() && !change.order.status.occupies_driver();
    leaves && before.order.partner.is_none()
}

/// The row, its events, its bookings, and the callback the change comes of, so that a callback changes nothing twice. In one
/// statement: most changes need no more than this, and each round trip costs as much as its statement.
///
/// Everything follows from the updated row. If the version is another, or the callback was acted on, nothing is written.
async fn write_core(tx: &mut Connection, change: &Change) -> Result<(), ApplyError> {
    let order = &change.order;
    let (callback, result) = change.callback.unzip();
    let events = |text: fn(&OrderEvent) -> &str| change.events.iter().map(text).collect::<Vec<_>>();
    let attempts: Vec<Option<i32>> = change.events.iter().map(|e| e.attempt_no).collect();
    let details: Vec<Option<&str>> = change.events.iter().map(|e| e.detail.as_deref()).collect();
    let written: i64 = sqlx::query_scalar(
        "-- write change
         WITH o AS (
             UPDATE orders SET status = $3, driver_id = $4, attempt_no = $5, round = $6, attempt_deadline = $7,
                    next_attempt_at = $8, lifetime_waived = $9, held_for_review = $10, held_reason = $11, closed_at = $12,
                    updated_at = $13, payment_status = $14, job_id = $15, poll_no = $16, next_poll_at = $17,
                    former_drivers = $18, trip_deadline = $28, hold_cause = $30, version = version + 1
             WHERE id = $1 AND version = $2
               AND ($19::bigint IS NULL OR EXISTS (SELECT 1 FROM inbox WHERE id = $19 AND state = 'pending'))
             RETURNING id),
         i AS (
             UPDATE inbox SET state = 'processed', result = $20, processed_at = $13 FROM o WHERE inbox.id = $19),
         b AS (
             INSERT INTO bookings (order_id, attempt_no, partner, state, booking_id, job_id, tries, next_try_at,
                                   last_error, created_at, booked_at, closed_at)
             SELECT o.id, c.attempt_no, c.partner, c.state, c.booking_id, c.job_id, c.tries, c.next_try_at,
                    c.last_error, c.created_at, c.booked_at, c.closed_at
             FROM o, jsonb_populate_recordset(NULL::bookings, $21) c
             ON CONFLICT (order_id, attempt_no) DO UPDATE
                SET state = excluded.state, booking_id = excluded.booking_id, job_id = excluded.job_id,
                    tries = excluded.tries, next_try_at = excluded.next_try_at, last_error = excluded.last_error,
                    booked_at = excluded.booked_at, closed_at = excluded.closed_at),
         e AS (
             INSERT INTO order_events (order_id, from_status, to_status, reason, actor, attempt_no, detail, at, key_id)
             SELECT o.id, c.from_status, c.to_status, c.reason, $22, c.attempt_no, c.detail, $13, $29
             FROM o, unnest($23::text[], $24::text[], $25::text[], $26::integer[], $27::text[]) WITH ORDINALITY
                  AS c (from_status, to_status, reason, attempt_no, detail, place)
             ORDER BY c.place)
         SELECT count(*) FROM o",
    )
    .bind(order.id.as_str())
    .bind(change.version)
    .bind(order.status)
    .bind(&order.driver_id)
    .bind(order.attempt_no)
    .bind(order.round)
    .bind(order.attempt_deadline)
    .bind(order.next_attempt_at)
    .bind(order.lifetime_waived)
    .bind(order.held_for_review)
    .bind(&order.held_reason)
    .bind(order.closed_at)
    .bind(change.at)
    .bind(order.payment_status.as_str())
    .bind(&order.job_id)
    .bind(order.poll_no)
    .bind(order.next_poll_at)
    .bind(&order.former_drivers)
    .bind(callback)
    .bind(result)
    .bind(Json(&change.bookings))
    .bind(change.actor.to_string())
    .bind(events(|e| e.from.as_str()))
    .bind(events(|e| e.to.as_str()))
    .bind(events(|e| e.reason.as_str()))
    .bind(attempts)
    .bind(details)
    .bind(order.trip_deadline)
    .bind(change.actor.key)
    .bind(order.hold_cause.as_ref().map(Json))
    .fetch_one(tx)
    .await
    .map_err(driver_busy)?;
    if written == 0 { Err(ApplyError::Conflict) } else { Ok(()) }
}

/// The unique index is the judge of "one active order per driver".
fn driver_busy(error: sqlx::Error) -> ApplyError {
    match error.as_database_error().and_then(|e| e.constraint()) {
        Some("orders_one_active_per_driver") => OrderRefusal::DriverBusy.into(),
        _ => error.into(),
    }
}

/// Makes sure that no change to this order that was decided earlier, on a time when the offer was still live, is written from
/// now on: one under way is waited for, and one that comes later must decide again. Does nothing if the offer has ended.
pub async fn outdate_decisions(db: impl PgExecutor<'_>, id: &OrderId, offer: OfferId) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- outdate decisions
         UPDATE orders SET version = version + 1
         WHERE id = $1 AND EXISTS (SELECT 1 FROM offers WHERE id = $2 AND order_id = $1 AND state = 'offered')",
    )
    .bind(id.as_str())
    .bind(offer)
    .execute(db)
    .await
    .map(drop)
}

/// The callbacks that had come for bookings not yet known: they are the order's now.
async fn match_callbacks(
    tx: &mut Connection,
    change: &Change,
    bookings: &[&Booking],
) -> Result<Vec<PendingCallback>, sqlx::Error> {
    let mut matched = Vec::new();
    for booking in bookings {
        let callbacks: Vec<(i64, DateTime<Utc>)> = sqlx::query_as(
            "-- match callbacks
             UPDATE inbox SET state = 'pending', order_id = $3
             WHERE partner = $1 AND booking_id = $2 AND state = 'unmatched' RETURNING id, received_at",
        )
        .bind(&booking.partner)
        .bind(&booking.booking_id)
        .bind(change.order.id.as_str())
        .fetch_all(&mut *tx)
        .await?;
        matched.extend(callbacks.into_iter().map(|(id, received_at)| PendingCallback { id, received_at }));
    }
    Ok(matched)
}

/// What the producer said of the money, so that the same event changes nothing twice. The latest [`MAX_PAYMENT_EVENTS`] are
/// kept, and the first that said that money came.
async fn write_payment_event(tx: &mut Connection, before: &Snapshot, change: &Change) -> Result<(), ApplyError> {
    let Some((event_id, status)) = &change.payment_event else { return Ok(()) };
    let inserted = sqlx::query(
        "-- insert payment event
         INSERT INTO payment_events (order_id, event_id, payment_status, received_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT DO NOTHING",
    )
    .bind(change.order.id.as_str())
    .bind(event_id)
    .bind(status.as_str())
    .bind(change.at)
    .execute(&mut *tx)
    .await?;
    if inserted.rows_affected() == 0 {
        return Err(ApplyError::Conflict);
    }
    if before.payments.len() >= MAX_PAYMENT_EVENTS {
        sqlx::query(
            "-- drop old payment events
             DELETE FROM payment_events WHERE order_id = $1
                AND event_id IN (SELECT event_id FROM payment_events WHERE order_id = $1
                                 ORDER BY received_at DESC, event_id = $3 DESC OFFSET $2)
                AND event_id IS DISTINCT FROM (SELECT event_id FROM payment_events
                                               WHERE order_id = $1 AND payment_status IN ('PAID', 'SETTLEMENT')
                                               ORDER BY received_at LIMIT 1)",
        )
        .bind(change.order.id.as_str())
        .bind(i64::try_from(MAX_PAYMENT_EVENTS).unwrap_or(i64::MAX))
        .bind(event_id)
        .execute(tx)
        .await?;
    }
    Ok(())
}
