//! Loads snapshots and writes changes. The only code that writes to `orders`.
//!
//! A change is written in one transaction, on the condition that the row still has the version the decision was made on.
//! Everything else is written only after the row was updated, so that its lock orders it: offers, events (whose `seq` so
//! orders the history of one order) and outbox rows. If the process dies before the commit nothing happened; if it dies after, the
//! follow-up jobs are missing and are put back by the repeated job or by the reconciler.

use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::{
    decide::{Change, Decision, OrderRefusal, change::OrderEvent, trip},
    ids::{DriverId, OfferId},
    messages::{self, ChannelRoutes},
    order::{
        Booking, KnownPayment, Offer, OfferState, Order, OrderStatus, PendingAlert, PendingCallback, PendingMessage,
        Snapshot, state,
    },
};
use sqlx::{FromRow, PgExecutor, postgres::PgRow, types::Json};
use uuid::Uuid;

use crate::{
    admission::waiting,
    app::App,
    crash,
    db::{Connection, DatabaseFailure, classify_error},
    error::ServiceError,
    notifications::{alerts, outbox},
    orders::metrics,
};

/// Payment events kept of one order. An event older than so many others is taken for a new one when it comes again, and
/// changes nothing unless it supersedes the order's payment status.
const MAX_PAYMENT_EVENTS: usize = 100;
/// Attempts at a change before its maker waits for its turn.
const MAX_CONFLICTS: usize = 4;
/// First key of the advisory locks of drivers to whom an offer is being made; the second is a hash of the driver's id.
const OFFERING: i32 = 0x6f66_6672;

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

/// What became of a request to change an order.
#[derive(Debug)]
pub enum ChangeOutcome {
    /// Written; the snapshot is the order as it now is.
    Yes(Box<Snapshot>),
    /// It was so already.
    No(Box<Snapshot>),
}

impl ChangeOutcome {
    pub fn snapshot(&self) -> &Snapshot {
        match self {
            Self::Yes(s) | Self::No(s) => s,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("no order of this id")]
    NotFound,
    #[error(transparent)]
    Refused(#[from] OrderRefusal),
    #[error("the order is changing too quickly; try again")]
    Busy,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl From<ChangeError> for ServiceError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Database(error) => Self::Database(error),
            other => Self::Incomplete(other.to_string()),
        }
    }
}

/// The order with all that decisions look at and the time, read in one statement.
pub async fn load_order(db: impl PgExecutor<'_>, id: &OrderId) -> Result<Option<Snapshot>, sqlx::Error> {
    load_order_with(db, id, None).await
}

/// As [`load_order`], with this offer, however old it is. Of the others only those count that are live or accepted, or of the
/// running attempt: an order that was offered to a hundred drivers ten times over is loaded as quickly as any other.
///
/// Columns are named one by one: a new one must not change what a prepared statement of a running process returns.
async fn load_order_with(
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

/// Loads, decides and writes, and again whenever another change was quicker. On one connection: taking one from the pool and
/// giving it back costs as much as a statement.
pub async fn change_order(
    app: &App,
    id: &OrderId,
    decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<ChangeOutcome, ChangeError> {
    change_about(app, id, None, decide).await
}

/// As [`change_order`], of a decision on this offer.
#[tracing::instrument(name = "change", level = "error", skip_all, fields(order.id = %id))]
pub async fn change_about(
    app: &App,
    id: &OrderId,
    offer: Option<OfferId>,
    mut decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<ChangeOutcome, ChangeError> {
    let mut db = app.db.acquire().await?;
    let mut read_again = false;
    for _ in 0..MAX_CONFLICTS {
        match try_change(app, &mut db, id, offer, &mut decide).await {
            Ok(Some(changed)) => return Ok(changed),
            Ok(None) => {}
            // The connection was lost, perhaps after the change was committed. The row knows: it is read and decided on once
            // more, on another connection. What was written then is so already.
            Err(ChangeError::Database(e)) if !read_again && classify_error(&e) == DatabaseFailure::OutcomeUnknown => {
                read_again = true;
                // Its place in the pool is the one that is needed.
                drop(db);
                db = app.db.acquire().await?;
            }
            Err(error) => return Err(error),
        }
    }
    // Many want to change it. A change that lost so often waits for its turn: with the row locked no other is quicker.
    let mut tx = db.begin().await?;
    sqlx::query(
        "-- lock order
         SELECT 1 FROM orders WHERE id = $1 FOR UPDATE",
    )
    .bind(id.as_str())
    .execute(&mut *tx)
    .await?;
    let before = load_order_with(&mut *tx, id, offer).await?.ok_or(ChangeError::NotFound)?;
    let change = match decide(&before) {
        Decision::Change(change) => with_trip_deadline(app, &before, *change),
        Decision::Unchanged => return Ok(ChangeOutcome::No(Box::new(before))),
        Decision::Refuse(refusal) => return Err(refusal.into()),
    };
    let written = match write_change(&mut tx, &app.config.notifications, &before, &change).await {
        Ok(after) => tx.commit().await.map(|()| after).map_err(ApplyError::from),
        Err(error) => Err(error),
    };
    follow_up(app, &before, &change, &written).await;
    match written {
        Ok(after) => Ok(ChangeOutcome::Yes(Box::new(after))),
        Err(ApplyError::Conflict) => Err(ChangeError::Busy),
        Err(ApplyError::Refused(refusal)) => Err(refusal.into()),
        Err(ApplyError::Database(e)) => Err(e.into()),
    }
}

/// Makes sure that no change to this order that was decided earlier, on a time when the offer was still live, is written from
/// now on: one under way is waited for, and one that comes later must decide again. Does nothing if the offer has ended.
pub async fn outdate_decisions(app: &App, id: &OrderId, offer: OfferId) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- outdate decisions
         UPDATE orders SET version = version + 1
         WHERE id = $1 AND EXISTS (SELECT 1 FROM offers WHERE id = $2 AND order_id = $1 AND state = 'offered')",
    )
    .bind(id.as_str())
    .bind(offer)
    .execute(&app.db)
    .await
    .map(drop)
}

/// Loads, decides and writes once, outside of any transaction. `None`: another change was first.
pub async fn try_change(
    app: &App,
    db: &mut Connection,
    id: &OrderId,
    offer: Option<OfferId>,
    decide: &mut impl FnMut(&Snapshot) -> Decision,
) -> Result<Option<ChangeOutcome>, ChangeError> {
    let before = load_order_with(&mut *db, id, offer).await?.ok_or(ChangeError::NotFound)?;
    let change = match decide(&before) {
        Decision::Change(change) => change,
        Decision::Unchanged => return Ok(Some(ChangeOutcome::No(Box::new(before)))),
        Decision::Refuse(refusal) => return Err(refusal.into()),
    };
    match apply_change_on(app, db, &before, *change).await {
        Ok(after) => Ok(Some(ChangeOutcome::Yes(Box::new(after)))),
        Err(ApplyError::Conflict) => Ok(None),
        Err(ApplyError::Refused(refusal)) => Err(refusal.into()),
        Err(ApplyError::Database(e)) => Err(e.into()),
    }
}

/// Writes a change decided on `before`, or nothing at all. Returns the order as it now is.
#[tracing::instrument(name = "change", level = "error", skip_all, fields(order.id = %before.order.id))]
pub async fn apply_change(app: &App, before: &Snapshot, change: Change) -> Result<Snapshot, ApplyError> {
    apply_change_on(app, &mut app.db.acquire().await?, before, change).await
}

/// `db` is outside of any transaction: what is written is committed.
async fn apply_change_on(
    app: &App,
    db: &mut Connection,
    before: &Snapshot,
    change: Change,
) -> Result<Snapshot, ApplyError> {
    let change = with_trip_deadline(app, before, change);
    let written = write_change(db, &app.config.notifications, before, &change).await;
    follow_up(app, before, &change, &written).await;
    written
}

/// Gives a change that begins a trip, or a leg of one, the time by which it is stale.
fn with_trip_deadline(app: &App, before: &Snapshot, mut change: Change) -> Change {
    if change.order.status.occupies_driver() && change.order.status != before.order.status {
        change.order.trip_deadline =
            trip::step_deadline(&app.policy_for_order(&change.order), change.order.status, change.at);
    }
    change
}

/// What others learn of a change, once it is committed or has failed: metrics, and who waits in its area.
async fn follow_up(app: &App, before: &Snapshot, change: &Change, written: &Result<Snapshot, ApplyError>) {
    if before.order.status == OrderStatus::Compensating && change.order.status.is_closed() {
        metrics::record_status_update(written.as_ref().err());
    }
    match written {
        Ok(after) => {
            metrics::record_update(true);
            metrics::record_change(before, change);
            waiting::update_after_change(app, before.order.status.is_searching(), &after.order, after.now).await;
        }
        Err(ApplyError::Conflict) => metrics::record_update(false),
        Err(_) => {}
    }
}

/// Writes a change on `db`: in a transaction of its own, or in the one that `db` is in.
async fn write_change(
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

async fn end_offers(tx: &mut Connection, change: &Change) -> Result<(), ApplyError> {
    if change.offers.is_empty() {
        return Ok(());
    }
    let ids: Vec<OfferId> = change.offers.iter().map(|end| end.offer.id).collect();
    let from: Vec<&str> = change.offers.iter().map(|end| end.offer.state.as_str()).collect();
    let to: Vec<&str> = change.offers.iter().map(|end| end.to.as_str()).collect();
    let why: Vec<Option<&str>> = change.offers.iter().map(|end| end.why.as_deref()).collect();
    let updated = sqlx::query(
        "-- end offers
         UPDATE offers o SET state = c.to_state, reason = c.why, responded_at = $5
         FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) AS c (id, from_state, to_state, why)
         WHERE o.id = c.id AND o.state = c.from_state",
    )
    .bind(&ids)
    .bind(&from)
    .bind(&to)
    .bind(&why)
    .bind(change.at)
    .execute(tx)
    .await?;
    if updated.rows_affected() == ids.len() as u64 { Ok(()) } else { Err(ApplyError::Conflict) }
}

/// An offer as it was made: id, driver, distance in metres.
type Made = (OfferId, DriverId, f64);

/// Offers to the best drivers who are still free, as many at once as the change says. Returns the offers with the
/// distances in metres.
///
/// A driver who was taken since the ranking was made is passed over: one with an active order, or without a free slot for
/// one more live offer. So is a driver to whom another transaction makes an offer at this moment: waiting for its commit
/// would put all orders of a busy place in one queue.
async fn insert_offers(tx: &mut Connection, change: &Change) -> Result<Vec<(Offer, f64)>, ApplyError> {
    let Some(new) = &change.new_offers else { return Ok(Vec::new()) };
    let wanted = usize::from(new.at_once.max(1));
    let mut made: Vec<Made> = Vec::new();
    let mut passed = 0;
    while made.len() < wanted && passed < new.ranked.len() {
        let next = &new.ranked[passed..new.ranked.len().min(passed + wanted - made.len())];
        let ids: Vec<OfferId> = next.iter().map(|_| OfferId::from_uuid(Uuid::now_v7())).collect();
        let drivers: Vec<&DriverId> = next.iter().map(|r| &r.driver_id).collect();
        let distances: Vec<f64> = next.iter().map(|r| r.distance_m).collect();
        let scores: Vec<f64> = next.iter().map(|r| r.score).collect();
        let rows: Vec<Made> = sqlx::query_as(
            "-- insert offers
             WITH locked AS MATERIALIZED (
                 SELECT c.* FROM unnest($1::uuid[], $2::text[], $3::float8[], $4::float8[]) WITH ORDINALITY
                      AS c (id, driver_id, distance_m, score, place)
                 WHERE pg_try_advisory_xact_lock($12, hashtext(c.driver_id)))
             INSERT INTO offers (id, order_id, attempt_no, round, driver_id, distance_m, score, rank, slot,
                                 offered_at, expires_at)
             SELECT c.id, $5, $6, $7, c.driver_id, c.distance_m, c.score, $8 + c.place, free.slot, $9, $10
             FROM locked c
             CROSS JOIN LATERAL (
                 SELECT s.n AS slot FROM generate_series(1, $11) AS s (n)
                 WHERE NOT EXISTS (SELECT 1 FROM offers f
                                   WHERE f.driver_id = c.driver_id AND f.state = 'offered' AND f.slot = s.n)
                 ORDER BY s.n LIMIT 1) free
             WHERE NOT EXISTS (SELECT 1 FROM orders o
                               WHERE o.driver_id = c.driver_id AND o.status IN ('DRIVER_ASSIGNED', 'PICKED_UP')
                             AND o.partner IS NULL)
             -- a slot taken since this statement began
             ON CONFLICT DO NOTHING
             RETURNING id, driver_id, distance_m",
        )
        .bind(&ids)
        .bind(&drivers)
        .bind(&distances)
        .bind(&scores)
        .bind(change.order.id.as_str())
        .bind(change.order.attempt_no)
        .bind(change.order.round)
        .bind(i32::try_from(passed).unwrap_or(i32::MAX))
        .bind(change.at)
        .bind(new.expires_at)
        .bind(i32::from(new.per_driver.max(1)))
        .bind(OFFERING)
        .fetch_all(&mut *tx)
        .await?;
        made.extend(rows);
        passed += next.len();
    }
    if made.is_empty() {
        return Err(ApplyError::Conflict);
    }
    let offer = |(id, driver_id, distance_m): Made| {
        let offer = Offer {
            id,
            attempt_no: change.order.attempt_no,
            round: change.order.round,
            driver_id,
            state: OfferState::Offered,
            offered_at: change.at,
            expires_at: new.expires_at,
        };
        (offer, distance_m)
    };
    Ok(made.into_iter().map(offer).collect())
}

async fn write_ranking(tx: &mut Connection, change: &Change) -> Result<(), sqlx::Error> {
    let Some((attempt_no, ranking)) = &change.ranking else { return Ok(()) };
    sqlx::query(
        "-- write ranking
         INSERT INTO rankings (order_id, attempt_no, at, candidates) VALUES ($1, $2, $3, $4)
         ON CONFLICT (order_id, attempt_no) DO UPDATE SET at = excluded.at, candidates = excluded.candidates",
    )
    .bind(change.order.id.as_str())
    .bind(attempt_no)
    .bind(change.at)
    .bind(Json(ranking))
    .execute(tx)
    .await?;
    Ok(())
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
