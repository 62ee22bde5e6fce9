//! Writes a change with everything that depends on it.
//!
//! A change is written in one transaction, on condition that the row has the version that the decision used. Most
//! changes are written by one statement for a batch ([`order_store`]). Offers to many drivers at once, payment events,
//! refunds, contents, alerts and webhooks about steps need separate statements. These run after the update of the row, whose lock
//! orders them.
//!
//! If the process dies before the commit, nothing has happened. If it dies after the commit, the follow-up jobs are
//! missing. The repeated job or the reconciler enqueues them again.

use std::sync::Arc;

use jobs::OrderId;
use model::{
    decide::{Change, OrderRefusal, RefundChange, change::OrderEvent},
    ids::OfferId,
    messages::{self, ChannelRoutes, routes::StepSubscription},
    order::{OrderStatus, OrderStep, Snapshot, state},
};
use sqlx::PgExecutor;
use uuid::Uuid;

use super::{contents::write_contents, offers::insert_offers};
use crate::{
    capability::Orders,
    feed,
    message_sending::send_claimed,
    order_store::{
        self,
        write::{OrderWrite, WriteVerdict, WrittenRows},
    },
    seen::AssumedTime,
    write_error::WriteError,
};
use foundation::{crash, db::Connection};
use notify::{alerts, outbox};

/// Payment events kept per order. A repeated older event is treated as new. It changes nothing unless it supersedes the
/// order's payment status.
const MAX_PAYMENT_EVENTS: usize = 100;
/// Batches that a change may join while its drivers turn out to be taken. The time to accept is running, so after that
/// it is written alone, which tries all remaining drivers without a pause.
const MOST_BATCHES: usize = 8;

/// Writes a change in a batch: one statement and one commit. Returns `None` if [`write_change`] must write it alone.
pub(crate) async fn write_with_others(
    orders: &Orders,
    before: &Snapshot,
    change: &Arc<Change>,
    assumed: Option<AssumedTime>,
    write_id: Uuid,
) -> Option<Result<Snapshot, WriteError>> {
    let routes = &orders.config.notifications;
    if let Err(refusal) = check_transitions(change) {
        return Some(Err(refusal.into()));
    }
    if told_subscription(routes, before, change).is_some() {
        return None;
    }
    let mut taken = Vec::new();
    for _ in 0..MOST_BATCHES {
        let mut item = OrderWrite::whole(write_id, before, change, &taken, routes)?.assuming(assumed);
        let claimed = orders.first_tries.claim(&orders.notify, &mut item);
        match orders.rows.write_change(item).await {
            Ok(WriteVerdict::Taken(drivers)) => taken.extend(drivers),
            Ok(WriteVerdict::Written(rows)) => {
                send_claimed(orders, claimed, &rows.written_messages);
                return Some(Ok(after_change(before, change, rows)));
            }
            Ok(WriteVerdict::Conflict) => return Some(Err(WriteError::Conflict)),
            Ok(WriteVerdict::Locked) => return None,
            // A driver got another offer since the statement started; the next statement sees it.
            Err(error) if violated_constraint(&error) == Some("offers_live_by_driver") => {}
            Err(error) => return Some(Err(driver_busy(error))),
        }
    }
    None
}

/// Writes a change on `db`, in a new transaction or in the open one. `assumed` is the time of a decision on a kept
/// order.
pub(crate) async fn write_change(
    db: &mut Connection,
    routes: &ChannelRoutes,
    before: &Snapshot,
    change: &Arc<Change>,
    assumed: Option<AssumedTime>,
    write_id: Uuid,
) -> Result<Snapshot, WriteError> {
    check_transitions(change)?;
    let subscription = told_subscription(routes, before, change);
    if subscription.is_none()
        && change.new_offers.is_none()
        && let Some(item) = OrderWrite::whole(write_id, before, change, &[], routes)
    {
        // A single statement is its own transaction.
        crash::reach_point("update", "commits");
        let rows = write_core(db, &item.assuming(assumed)).await?;
        crash::reach_point("update", "committed");
        return Ok(after_change(before, change, rows));
    }
    let mut tx = db.begin().await?;
    let item = OrderWrite::new(write_id, before, change.clone()).assuming(assumed);
    let mut rows = write_core(&mut tx, &item).await?;
    let offered = insert_offers(&mut tx, change).await?.ok_or(WriteError::Conflict)?;
    write_payment_event(&mut tx, before, change).await?;
    write_refund(&mut tx, change).await?;
    write_contents(&mut tx, before, change, &rows.steps).await?;
    let mut alerts = before.alerts.clone();
    let mut responses = Vec::new();
    for settlement in &change.settles {
        let settled = alerts::settle_alerts(&mut tx, &change.order.id, settlement, &change.actor).await?;
        alerts.retain(|a| settled.iter().all(|(id, _)| *id != a.id));
        responses.extend(settled.into_iter().map(|(_, waited_s)| (settlement.kind.as_str(), waited_s)));
    }
    let mut to_tell = change.messages.clone();
    to_tell.extend(change.subscriber_copies(routes));
    to_tell
        .extend(offered.iter().map(|(offer, distance_m)| messages::offer_created(&change.order, offer, *distance_m)));
    if let Some((producer, subscription)) = subscription {
        if owes_creation(before, subscription) {
            let creation = feed::load_creation(&mut tx, &change.order.id).await?.into_iter();
            let wanted = creation.filter(|body| subscription.has_step(body.event));
            to_tell.extend(wanted.map(|body| messages::order_step(producer, body)));
        }
        to_tell.extend(change.step_messages(producer, subscription, &rows.steps));
    }
    let written = outbox::insert_messages(&mut tx, routes, &change.order.id, &to_tell, change.at).await?;
    rows.messages.extend(written.messages);
    alerts.extend(written.alerts);
    crash::reach_point("update", "commits");
    tx.commit().await?;
    crash::reach_point("update", "committed");
    for (kind, waited_s) in responses {
        alerts::record_response(kind, waited_s);
    }
    for kind in &written.raised {
        alerts::record_order_alert(&change.order.id, kind);
    }

    let mut after = after_change(before, change, rows);
    after.offers.extend(offered.into_iter().map(|(offer, _)| offer));
    after.alerts = alerts;
    Ok(after)
}

/// Returns the producer that is notified of a step of this change, and its subscription.
fn told_subscription<'a>(
    routes: &'a ChannelRoutes,
    before: &Snapshot,
    change: &'a Change,
) -> Option<(&'a str, &'a StepSubscription)> {
    let (producer, subscription) = routes.subscription_of(change.order.owner.as_deref())?;
    let tells = change.steps().into_iter().flatten().any(|step| subscription.has_step(step));
    (tells || owes_creation(before, subscription)).then_some((producer, subscription))
}

/// Returns whether this is the first change of an order whose producer subscribes to creations. The creation of an
/// order created in SQL is sent with its first change. If the API has already sent the creation, it is not sent again.
fn owes_creation(before: &Snapshot, subscription: &StepSubscription) -> bool {
    let is_scheduled = before.order.status == OrderStatus::Scheduled;
    before.order.version == 0
        && (subscription.has_step(OrderStep::Created) || (is_scheduled && subscription.has_step(OrderStep::Scheduled)))
}

/// Refuses a change with an illegal transition. It is a bug, and no change is better than a wrong history.
fn check_transitions(change: &Change) -> Result<(), OrderRefusal> {
    let is_illegal = |event: &&OrderEvent| !state::is_transition_allowed(Some(event.from), event.to);
    match change.events.iter().find(is_illegal) {
        Some(event) => Err(OrderRefusal::Illegal { from: event.from, to: event.to }),
        None => Ok(()),
    }
}

/// Returns the order after a written change.
fn after_change(before: &Snapshot, change: &Change, rows: WrittenRows) -> Snapshot {
    let mut after = before.apply(change);
    after.offers.extend(rows.offers);
    after.messages.extend(rows.messages);
    after.callbacks.extend(rows.callbacks);
    after.now = rows.now;
    after
}

/// Writes the part that fits in one statement. Waits for sessions that have locked the row.
async fn write_core(db: &mut Connection, item: &OrderWrite) -> Result<WrittenRows, WriteError> {
    order_store::write::write_alone(db, item).await.map_err(driver_busy)?.ok_or(WriteError::Conflict)
}

/// Returns the refusal if a unique index prevents a second active order of the driver.
fn driver_busy(error: sqlx::Error) -> WriteError {
    match violated_constraint(&error) {
        Some("orders_one_active_per_driver") => OrderRefusal::DriverBusy.into(),
        _ => error.into(),
    }
}

fn violated_constraint(error: &sqlx::Error) -> Option<&str> {
    error.as_database_error().and_then(|e| e.constraint())
}

/// Prevents changes of this order that were decided while the offer was live from being written later: a running write
/// is awaited, and a later one must decide again. Does nothing if the offer has ended.
pub async fn outdate_decisions(db: impl PgExecutor<'_>, id: &OrderId, offer: OfferId) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- outdate decisions
         UPDATE orders SET version = version + 1
         WHERE id = $1 AND EXISTS (SELECT 1 FROM offers WHERE order_id = $1 AND id = $2 AND state || '' = 'offered')",
    )
    .bind(id.as_str())
    .bind(offer)
    .execute(db)
    .await
    .map(drop)
}

/// Stores the producer's payment event, so that a repeated event changes nothing. Keeps the latest
/// [`MAX_PAYMENT_EVENTS`] events and the first one that reported a payment.
async fn write_payment_event(tx: &mut Connection, before: &Snapshot, change: &Change) -> Result<(), WriteError> {
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
        return Err(WriteError::Conflict);
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

/// Writes the refund's progress: a new request to the payment service, or its result.
async fn write_refund(tx: &mut Connection, change: &Change) -> Result<(), WriteError> {
    let order = change.order.id.as_str();
    let write = match &change.refund {
        None => return Ok(()),
        Some(RefundChange::Ask) => sqlx::query(
            "-- ask for refund
             INSERT INTO refunds (order_id, amount_minor, currency, next_try_at, created_at)
             SELECT id, amount_minor, currency, $2, $2 FROM orders WHERE id = $1
             ON CONFLICT (order_id) DO NOTHING",
        )
        .bind(order)
        .bind(change.at),
        Some(RefundChange::Done(refund_id)) => sqlx::query(
            "-- refund done
             UPDATE refunds SET state = 'refunded', next_try_at = NULL, closed_at = $2, refund_id = coalesce(refund_id, $3),
                    service_paid = service_paid OR $3 IS NOT NULL
             WHERE order_id = $1 AND state <> 'refunded'",
        )
        .bind(order)
        .bind(change.at)
        .bind(refund_id),
        Some(RefundChange::Refused { why, refund_id }) => sqlx::query(
            "-- refund refused
             UPDATE refunds SET state = 'refused', next_try_at = NULL, closed_at = $2, last_error = $3,
                    refund_id = coalesce(refund_id, $4), service_failed = service_failed OR $4 IS NOT NULL
             WHERE order_id = $1 AND state IN ('asking', 'accepted')",
        )
        .bind(order)
        .bind(change.at)
        .bind(why)
        .bind(refund_id),
        Some(RefundChange::OtherId(refund_id)) => sqlx::query(
            "-- refund of another id
             UPDATE refunds SET other_refund_ids = other_refund_ids || $2 WHERE order_id = $1",
        )
        .bind(order)
        .bind(refund_id),
        Some(RefundChange::Late { refund_id, was_paid }) => sqlx::query(
            "-- late result of refund
             UPDATE refunds SET refund_id = coalesce(refund_id, $2), service_paid = service_paid OR $3,
                    service_failed = service_failed OR NOT $3
             WHERE order_id = $1",
        )
        .bind(order)
        .bind(refund_id)
        .bind(was_paid),
    };
    write.execute(tx).await?;
    Ok(())
}
