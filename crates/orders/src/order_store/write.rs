//! Writes changes of orders, many in one statement and one commit.
//!
//! A change is written only if its row has the version that the decision used. The callback that causes it must not be
//! processed yet, and the offers that it ends must have the expected state. A change that creates offers waits for no
//! driver: see `planned`.
//!
//! Rows are locked first, in the order of their ids, and drivers after them. A batch skips rows that another session
//! has locked, so it never waits; the change of such a row is written alone, by the same statement. All other rows
//! depend on the updated row, whose lock orders them: events and steps, bookings, callbacks, payments, refunds, contents,
//! alerts and outbox rows. The `seq` of events thus orders the history of one order.
//!
//! If the process dies before the commit, nothing has happened. If it dies after the commit, the follow-up jobs are
//! missing. The repeated job or the reconciler enqueues them again.

use std::{collections::HashMap, sync::Arc};

use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::{
    decide::Change,
    ids::{DriverId, PartnerName},
    messages::{ChannelRoutes, MessageAudience},
    order::{Booking, Offer, Order, PendingAlert, PendingCallback, PendingMessage, Snapshot},
};
use serde::Deserialize;
use sqlx::{AssertSqlSafe, PgExecutor, types::Json};
use uuid::Uuid;

use super::outgoing::{MessageContext, OutgoingMessages};
use super::planned::{NewOfferValues, OFFERING, OfferPlan};
use super::side_values::{
    AlertValues, ContentsValues, PaymentValues, RefundValues, SettlementValues, drops_payment_event,
};
use super::statement::WriteParts;
use super::values::{
    ArrivalValues, BookingValues, EventValues, OfferValues, OrderValues, OutboxValues, RankingValues, json_of,
};
use crate::seen::AssumedTime;
use foundation::{
    crash,
    db::{Pool, write_or_halve},
};

/// Change to write, with the values that the statement needs besides the decision.
#[derive(Debug, Clone)]
pub struct OrderWrite {
    /// Stored with the change. It identifies the change if the response to its commit is lost.
    pub id: Uuid,
    pub change: Arc<Change>,
    /// Bookings whose id at the partner is new. Callbacks that came before it now belong to the order.
    pub(super) newly_known: Vec<Booking>,
    /// Driver of our own fleet who no longer has an order.
    pub(super) freed_driver: Option<DriverId>,
    pub(super) plan: OfferPlan,
    pub(crate) messages: Vec<OutboxValues>,
    alerts: Vec<AlertValues>,
    /// Whether the change writes the times of a scheduled order.
    is_rescheduled: bool,
    /// Whether the change moves the pickup location.
    is_moved: bool,
    /// Whether an old payment event is removed.
    drops_payment: bool,
    /// Time that the decision assumed, if its order was kept.
    assumed: Option<AssumedTime>,
}

/// Resource that two changes in a batch must not share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum WriteKey {
    Order(OrderId),
    Driver(DriverId),
    Booking(PartnerName, String),
    Callback(i64),
}

#[derive(Debug, Clone, PartialEq)]
pub enum WriteVerdict {
    Written(WrittenRows),
    /// Another change was written first: decide again.
    Conflict,
    /// These drivers are not free, or are getting another offer. The change must choose others.
    Taken(Vec<DriverId>),
    /// Another session has locked the row or its driver, or the row does not exist. The change must be written alone.
    Locked,
    /// The area has no room for the change.
    NoRoom,
}

/// Values of a written change that only Postgres knows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WrittenRows {
    pub messages: Vec<PendingMessage>,
    pub(crate) written_messages: Vec<WrittenMessage>,
    /// Callbacks that are pending now that their booking is known.
    pub callbacks: Vec<PendingCallback>,
    /// Numbers of the change's steps in the feed, in their order.
    pub steps: Vec<i64>,
    pub offers: Vec<Offer>,
    /// Alerts that the change acknowledged.
    pub(crate) settled: Vec<SettledAlert>,
    /// Alerts that the change raised.
    pub(crate) raised: Vec<WrittenAlert>,
    /// Time of Postgres at the write.
    pub now: DateTime<Utc>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct SettledAlert {
    pub(crate) id: i64,
    pub(crate) kind: String,
    /// Seconds from raising the alert to its acknowledgement.
    pub(crate) waited_s: f64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct WrittenAlert {
    id: i64,
    pub(crate) kind: String,
    next_escalation_at: Option<DateTime<Utc>>,
}

impl WrittenAlert {
    /// Returns the alert as decisions see it. `None` if it is never repeated.
    pub(crate) fn to_pending(&self) -> Option<PendingAlert> {
        let next_escalation_at = self.next_escalation_at?;
        Some(PendingAlert { id: self.id, kind: self.kind.clone(), next_escalation_at })
    }
}

pub(crate) type WriteResult = Result<WriteVerdict, sqlx::Error>;

impl OrderWrite {
    /// Creates a write of the change with its messages and its offers to the best drivers, skipping those in `taken`.
    /// Either all offers are created or the change is not written. Returns `None` if all drivers are taken.
    pub fn whole(
        id: Uuid,
        before: &Snapshot,
        change: &Arc<Change>,
        taken: &[DriverId],
        routes: &ChannelRoutes,
    ) -> Option<Self> {
        Self::in_context(id, before, change, taken, routes, &MessageContext::default())
    }

    /// Creates a write like [`whole`](Self::whole), whose messages need these rows.
    pub(crate) fn in_context(
        id: Uuid,
        before: &Snapshot,
        change: &Arc<Change>,
        taken: &[DriverId],
        routes: &ChannelRoutes,
        context: &MessageContext,
    ) -> Option<Self> {
        let plan = OfferPlan::new(change, taken)?;
        let OutgoingMessages { rows, alerts } = OutgoingMessages::of_change(change, &plan, routes, context);
        Some(Self { plan, messages: rows, alerts, ..Self::new(id, before, change.clone()) })
    }

    /// Creates a write without messages and offers.
    fn new(id: Uuid, before: &Snapshot, change: Arc<Change>) -> Self {
        let is_known = |b: &&Booking| before.booking_of_attempt(b.attempt_no).is_some_and(|b| b.booking_id.is_some());
        let with_id = change.bookings.iter().filter(|b| b.booking_id.is_some());
        let newly_known = with_id.filter(|b| !is_known(b)).cloned().collect();
        let leaves = before.order.status.occupies_driver() && !change.order.status.occupies_driver();
        let is_freed = leaves && before.order.partner.is_none();
        let freed_driver = before.order.driver_id.clone().filter(|_| is_freed);
        let times = |o: &Order| (o.pickup_at, o.starts_at, o.warn_at);
        let is_admitted = change.order.admission != before.order.admission;
        let is_rescheduled = times(&before.order) != times(&change.order) || is_admitted;
        Self {
            id,
            newly_known,
            freed_driver,
            plan: OfferPlan::default(),
            messages: Vec::new(),
            alerts: Vec::new(),
            is_rescheduled,
            is_moved: before.order.pickup() != change.order.pickup(),
            drops_payment: drops_payment_event(before, &change),
            assumed: None,
            change,
        }
    }

    /// Requires that the time of Postgres agrees with the time that the decision assumed.
    #[must_use]
    pub(crate) fn assuming(self, assumed: Option<AssumedTime>) -> Self {
        Self { assumed, ..self }
    }

    /// Returns whether this process may send the change's messages itself. It may not if the change has an alert, a
    /// payment, new contents or a message about a step: a failed delivery of such a message would count two tries.
    pub(crate) fn allows_first_tries(&self) -> bool {
        let change = &self.change;
        change.payment_event.is_none()
            && change.refund.is_none()
            && change.contents.is_none()
            && change.settles.is_empty()
            && self.alerts.is_empty()
            && change.messages.iter().all(|message| message.audience != MessageAudience::Dispatchers)
            && !self.messages.iter().any(|message| message.reports_step)
    }

    pub(super) fn keys(&self) -> Vec<WriteKey> {
        let order = &self.change.order;
        let mut keys = vec![WriteKey::Order(order.id.clone())];
        let own_driver = order.driver_id.iter().filter(|_| order.partner.is_none() && order.status.occupies_driver());
        let asked = self.plan.offers.iter().map(|planned| &planned.offer.driver_id);
        keys.extend(own_driver.chain(&self.freed_driver).chain(asked).cloned().map(WriteKey::Driver));
        let with_id = |b: &Booking| Some(WriteKey::Booking(b.partner.clone(), b.booking_id.clone()?));
        keys.extend(self.change.bookings.iter().filter_map(with_id));
        keys.extend(self.change.callback.map(|(id, _)| WriteKey::Callback(id)));
        keys
    }

    pub(super) fn order_id(&self) -> &str {
        self.change.order.id.as_str()
    }

    fn to_values(&self) -> OrderValues<'_> {
        let mut values =
            OrderValues::from_change(self.id, &self.change, self.plan.offers.len(), self.freed_driver.as_ref());
        values.assumed_now = self.assumed.map(AssumedTime::now);
        values.basis_write = self.assumed.map(|assumed| assumed.write_id);
        values
    }

    fn verdict_of(&self, rows: &mut HashMap<String, WrittenRow>) -> WriteVerdict {
        match rows.remove(self.order_id()) {
            None | Some(WrittenRow { is_current: None, .. }) => WriteVerdict::Locked,
            Some(WrittenRow { is_current: Some(false), .. }) => WriteVerdict::Conflict,
            Some(row) if row.has_room == Some(false) => WriteVerdict::NoRoom,
            Some(row) if !row.is_ready => {
                let asked = self.plan.drivers();
                let taken: Vec<_> = asked.filter(|driver| !row.free_drivers.contains(driver)).cloned().collect();
                if taken.is_empty() { WriteVerdict::Locked } else { WriteVerdict::Taken(taken) }
            }
            Some(row) if !row.is_written => WriteVerdict::Conflict,
            Some(row) => {
                let due_at = |written: &WrittenMessage| {
                    let claimed =
                        self.messages.iter().find(|m| written.is_claimed && m.message_id == written.message_id);
                    claimed.map_or(self.change.at, |message| message.due_at)
                };
                let pending = |m: &WrittenMessage| PendingMessage { id: m.id, next_attempt_at: due_at(m) };
                WriteVerdict::Written(WrittenRows {
                    messages: row.messages.iter().map(pending).collect(),
                    written_messages: row.messages.0,
                    callbacks: row.callbacks.0,
                    steps: row.steps,
                    settled: row.settled.0,
                    raised: row.raised.0,
                    now: row.now,
                    offers: self.plan.offers.iter().map(|planned| planned.offer.clone()).collect(),
                })
            }
        }
    }
}

/// Writes the changes. Returns one result per change, in their order.
pub(super) async fn write_all(db: &Pool, items: Vec<OrderWrite>) -> Vec<WriteResult> {
    let items: Vec<_> = items.into_iter().map(Arc::new).collect();
    write_or_halve(&items, |items| {
        let db = db.clone();
        async move {
            reach_point(&items, "commits");
            let mut rows = write_rows(&db, true, items.iter().map(|item| &**item)).await?;
            reach_point(&items, "committed");
            Ok(items.iter().map(|item| item.verdict_of(&mut rows)).collect())
        }
    })
    .await
}

/// Crash points for tests: with any pending change, or with several in one commit.
fn reach_point(items: &[Arc<OrderWrite>], stage: &'static str) {
    crash::reach_point("update", stage);
    if items.len() > 1 {
        crash::reach_point("batch", stage);
    }
}

/// Writes one change on `db`. Waits for sessions that have locked its row, and for the lock of its area if it needs
/// room there. Returns [`WriteVerdict::Locked`] only if the order does not exist.
pub(crate) async fn write_alone(db: impl PgExecutor<'_>, item: &OrderWrite) -> WriteResult {
    crash::reach_point("update", "commits");
    let mut rows = write_rows(db, false, std::iter::once(item)).await?;
    crash::reach_point("update", "committed");
    Ok(item.verdict_of(&mut rows))
}

/// Returns whether this write was committed and is the latest. Waits for a session that has locked the row.
pub(super) async fn was_written(db: &Pool, order: &OrderId, write: Uuid) -> Result<bool, sqlx::Error> {
    let is_mine: Option<Option<bool>> = sqlx::query_scalar(
        "-- find write
         SELECT write_id = $2 FROM orders WHERE id = $1 FOR SHARE",
    )
    .bind(order.as_str())
    .bind(write)
    .fetch_optional(db)
    .await?;
    Ok(is_mine.flatten().unwrap_or(false))
}

/// Row of a message that a change wrote.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(crate) struct WrittenMessage {
    pub(crate) id: i64,
    pub(crate) message_id: Uuid,
    /// Whether the first try belongs to this process.
    pub(crate) is_claimed: bool,
}

#[derive(sqlx::FromRow)]
struct WrittenRow {
    id: String,
    /// Whether the row has the version that the decision used. `None` if another session has locked the row, or it does
    /// not exist.
    is_current: Option<bool>,
    /// Whether the required driver's row and all drivers for new offers are available.
    is_ready: bool,
    is_written: bool,
    /// Drivers for new offers who are free.
    free_drivers: Vec<DriverId>,
    messages: Json<Vec<WrittenMessage>>,
    callbacks: Json<Vec<PendingCallback>>,
    steps: Vec<i64>,
    settled: Json<Vec<SettledAlert>>,
    raised: Json<Vec<WrittenAlert>>,
    /// Whether the area has room. `None` if the change needs none, or the row has another version.
    has_room: Option<bool>,
    now: DateTime<Utc>,
}

/// Runs the statement. Returns the result of each change by the id of its order. The statement is its own transaction
/// unless `db` is in one.
async fn write_rows<'a>(
    db: impl PgExecutor<'_>,
    passes_over: bool,
    items: impl Iterator<Item = &'a OrderWrite> + Clone,
) -> Result<HashMap<String, WrittenRow>, sqlx::Error> {
    let changes = || items.clone().map(|item| &*item.change);
    let orders: Vec<_> = items.clone().map(OrderWrite::to_values).collect();
    let events: Vec<_> = changes().flat_map(EventValues::from_change).collect();
    let bookings: Vec<_> =
        items.clone().flat_map(|item| BookingValues::from_change(&item.change, &item.newly_known)).collect();
    let offers: Vec<_> = changes().flat_map(OfferValues::from_change).collect();
    let rankings: Vec<_> = changes().filter_map(RankingValues::from_change).collect();
    let arrivals: Vec<_> = changes().filter_map(ArrivalValues::from_change).collect();
    let messages: Vec<_> = items.clone().flat_map(|item| &item.messages).collect();
    let new_offers = items.clone().flat_map(|item| NewOfferValues::from_plan(item.order_id(), &item.plan));
    let new_offers: Vec<_> = new_offers.collect();
    let payments: Vec<_> = changes().filter_map(PaymentValues::from_change).collect();
    let refunds: Vec<_> = changes().filter_map(RefundValues::from_change).collect();
    let contents = items.clone().filter_map(|item| ContentsValues::from_change(&item.change, item.is_moved));
    let contents: Vec<_> = contents.collect();
    let settlements: Vec<_> = changes().flat_map(SettlementValues::from_change).collect();
    let alerts: Vec<_> = items.clone().flat_map(|item| &item.alerts).collect();
    let freed: Vec<&str> = items.clone().filter_map(|item| item.freed_driver.as_deref()).collect();
    let parts = WriteParts {
        passes_over,
        events: !events.is_empty(),
        callbacks: changes().any(|change| change.callback.is_some()),
        arrivals: !arrivals.is_empty(),
        bookings: !bookings.is_empty(),
        matches: items.clone().any(|item| !item.newly_known.is_empty()),
        offers: !offers.is_empty(),
        new_offers: !new_offers.is_empty(),
        drivers: !freed.is_empty(),
        rankings: !rankings.is_empty(),
        messages: !messages.is_empty(),
        schedule: items.clone().any(|item| item.is_rescheduled),
        steps: events.iter().any(EventValues::is_step),
        told_steps: messages.iter().any(|message| message.step_no.is_some()),
        payments: !payments.is_empty(),
        old_payments: items.clone().any(|item| item.drops_payment),
        refunds: !refunds.is_empty(),
        contents: !contents.is_empty(),
        settlements: !settlements.is_empty(),
        alerts: !alerts.is_empty(),
        room: changes().any(|change| change.room.is_some()),
    };
    let rows: Vec<WrittenRow> = sqlx::query_as(AssertSqlSafe(parts.statement()))
        .bind(json_of(&orders)?)
        .bind(json_of(&events)?)
        .bind(items.clone().map(OrderWrite::order_id).collect::<Vec<_>>())
        .bind(json_of(&bookings)?)
        .bind(json_of(&offers)?)
        .bind(json_of(&messages)?)
        .bind(freed)
        .bind(json_of(&rankings)?)
        .bind(json_of(&arrivals)?)
        .bind(json_of(&new_offers)?)
        .bind(OFFERING)
        .bind(json_of(&payments)?)
        .bind(json_of(&refunds)?)
        .bind(json_of(&contents)?)
        .bind(json_of(&settlements)?)
        .bind(json_of(&alerts)?)
        .fetch_all(db)
        .await?;
    Ok(rows.into_iter().map(|row| (row.id.clone(), row)).collect())
}
