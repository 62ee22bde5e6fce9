//! Decides on an order, writes the change, and updates the values derived from it: metrics, the waiting orders of its
//! area, the gate.

use std::sync::Arc;

use jobs::OrderId;
use model::{
    decide::{Change, Decision, OrderRefusal, RefundChange, money, superseded::superseded_timers, timers, trip},
    fleet::freed,
    ids::{AreaId, DriverId, OfferId},
    order::{OrderStatus, Snapshot},
    partner::RetrievalFailure,
};
use tracing::Instrument;
use uuid::Uuid;

use super::{
    accept_gate::{self, GateUpdate},
    freed_drivers,
    kept::{AssumedTime, FoundOrder, assert_equals_row},
    metrics, retrieval_log,
    seen::SeenOrder,
    store::write::{ApplyError, write_change, write_with_others},
};
use crate::{capability::Orders, order_store::load::load_order_with};
use areas::admission::waiting;
use foundation::{
    db::{DatabaseFailure, classify_error, is_rolled_back_for_another},
    error::ServiceError,
    traces,
};
use queue::{Command, JobAddress, Outcome};

/// Attempts at a change before it is made under a row lock.
const MAX_CONFLICTS: usize = 4;

#[derive(Debug)]
pub struct ChangedOrder {
    pub after: Snapshot,
    /// Timers that the order will never need again.
    pub superseded: Vec<JobAddress>,
}

impl ChangedOrder {
    pub fn new(before: &Snapshot, after: Snapshot) -> Self {
        Self { superseded: superseded_timers(before, &after), after }
    }
}

/// Best-effort Redis updates after a commit, timers excluded: the waiting orders of the area, the gate, and drivers who
/// may be free again. They are hints; a lost update is repaired later.
#[derive(Debug, Default)]
#[must_use = "it is told by `tell`"]
pub struct ChangeNews {
    waiting: Option<Command>,
    gate: Option<GateUpdate>,
    freed: Vec<DriverId>,
}

impl ChangeNews {
    pub(crate) async fn tell(&self, orders: &Orders) {
        let waiting = async {
            if let Some(update) = &self.waiting {
                waiting::send_update(&orders.core, update).await;
            }
        };
        let gate = async {
            if let Some(update) = &self.gate {
                accept_gate::send_update(orders, update).await;
            }
        };
        tokio::join!(waiting, gate, freed_drivers::record_freed(&orders.core, &self.freed));
    }
}

/// A committed change and the Redis updates that follow it.
struct CommittedChange {
    after: Snapshot,
    news: ChangeNews,
}

/// Outcome of a request and the Redis updates that follow it.
pub type ToldOutcome = (ChangeOutcome, ChangeNews);

#[derive(Debug)]
pub enum ChangeOutcome {
    Yes(Box<ChangedOrder>),
    /// The order was already in this state.
    No(Box<Snapshot>),
}

impl ChangeOutcome {
    pub fn snapshot(&self) -> &Snapshot {
        match self {
            Self::Yes(changed) => &changed.after,
            Self::No(s) => s,
        }
    }

    /// Returns the outcome of a job that made this change.
    pub fn into_job_outcome(self) -> Outcome {
        match self {
            Self::Yes(changed) => {
                Outcome::Done { then: timers::derive_jobs(&changed.after), superseded: changed.superseded }
            }
            Self::No(s) => Outcome::then_enqueue(timers::derive_jobs(&s)),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("no order with this id")]
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
            busy @ ChangeError::Busy => Self::Incomplete(busy.to_string()),
            refused => Self::Unusable(refused.to_string()),
        }
    }
}

/// Loads the order, decides and writes. Repeats this if another change was written first.
pub async fn change_order(
    orders: &Orders,
    id: &OrderId,
    decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<ChangeOutcome, ChangeError> {
    change_about(orders, id, None, decide).await
}

/// Changes an order like [`change_order`], for a decision about this offer.
pub async fn change_about(
    orders: &Orders,
    id: &OrderId,
    offer: Option<OfferId>,
    decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<ChangeOutcome, ChangeError> {
    let (changed, news) = change_without_news(orders, id, offer, None, decide).await?;
    news.tell(orders).await;
    Ok(changed)
}

/// Changes an order like [`change_about`], starting from the snapshot `seen` if it is recent. The caller sends the
/// Redis updates.
pub(crate) async fn change_without_news(
    orders: &Orders,
    id: &OrderId,
    offer: Option<OfferId>,
    seen: Option<SeenOrder>,
    decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<ToldOutcome, ChangeError> {
    let seen = seen.and_then(SeenOrder::into_recent);
    change_until_written(orders, id, offer, seen, decide).instrument(traces::change_span(id)).await
}

/// Changes an order like [`change_order`], starting from a recent snapshot. The order is read again if another change
/// was written first, if the decision changes nothing, or if the snapshot is too old.
pub async fn change_seen_order(
    orders: &Orders,
    seen: &SeenOrder,
    decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<ChangeOutcome, ChangeError> {
    let id = &seen.snapshot().order.id;
    let changed = change_until_written(orders, id, None, seen.recent(), decide);
    let (changed, news) = changed.instrument(traces::change_span(id)).await?;
    news.tell(orders).await;
    Ok(changed)
}

async fn change_until_written(
    orders: &Orders,
    id: &OrderId,
    offer: Option<OfferId>,
    mut seen: Option<Snapshot>,
    mut decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<ToldOutcome, ChangeError> {
    let mut read_again = false;
    for attempt in 0..MAX_CONFLICTS {
        let basis = match seen.take() {
            Some(seen) => Basis::Seen(seen),
            None if attempt == 0 => find_kept(orders, id, offer).await?.map_or(Basis::Fresh, Basis::Kept),
            None => Basis::Fresh,
        };
        match try_with_others(orders, id, offer, basis, &mut decide).await {
            Ok(Some(changed)) => return Ok(changed),
            Ok(None) => {}
            // The connection was lost, possibly after the commit. The row is read and decided on once more, on another
            // connection. If the change was committed, the second decision finds it done.
            Err(ChangeError::Database(e)) if !read_again && classify_error(&e) == DatabaseFailure::OutcomeUnknown => {
                read_again = true;
            }
            // Nothing was written.
            Err(ChangeError::Database(e)) if is_rolled_back_for_another(&e) => {}
            Err(error) => return Err(error),
        }
    }
    // Many changes compete. With the row locked, no other change can be written first.
    let mut tx = orders.core.db.begin().await?;
    sqlx::query(
        "-- lock order
         SELECT 1 FROM orders WHERE id = $1 FOR UPDATE",
    )
    .bind(id.as_str())
    .execute(&mut *tx)
    .await?;
    let before = load_order_with(&mut *tx, id, offer).await?.ok_or(ChangeError::NotFound)?;
    let change = match decide(&before) {
        Decision::Change(change) => Arc::new(with_settings(orders, &before, *change)),
        Decision::Unchanged => return Ok(unchanged(before)),
        Decision::Refuse(refusal) => return Err(refusal.into()),
    };
    let (routes, write_id) = (&orders.config.notifications, Uuid::now_v7());
    let written = match write_change(&mut tx, routes, &before, &change, None, write_id).await {
        Ok(after) => tx.commit().await.map(|()| after).map_err(ApplyError::from),
        Err(error) => Err(error),
    };
    let committed = follow_up(orders, &before, &change, write_id, written);
    outcome_of(&before, committed)?.ok_or(ChangeError::Busy)
}

/// The order that a decision uses.
enum Basis {
    /// The order is loaded.
    Fresh,
    /// The order was loaded a moment ago.
    Seen(Snapshot),
    /// The order as this process last wrote it.
    Kept(FoundOrder),
}

/// Returns the order as this process last wrote it, if it is kept. Returns `None` while Postgres is slow: the write of a
/// decision on a kept order would then find that its time is wrong, and be made twice.
pub(crate) async fn find_kept(
    orders: &Orders,
    id: &OrderId,
    offer: Option<OfferId>,
) -> Result<Option<FoundOrder>, sqlx::Error> {
    let found = orders.kept.find(id, offer, orders.core.clock.now()).filter(|_| !orders.is_overloaded());
    if let Some(found) = found.as_ref().filter(|_| orders.kept.is_checked())
        && let Some(row) = orders.rows.load_order_with(id, offer).await?
    {
        assert_equals_row(&found.snapshot, &row);
    }
    Ok(found)
}

/// Loads, decides and writes once. The load shares a batch with other orders, and so does the write if possible. Only a
/// `Fresh` order is loaded. Returns `None` if another change was, or may have been, written first.
async fn try_with_others(
    orders: &Orders,
    id: &OrderId,
    offer: Option<OfferId>,
    basis: Basis,
    decide: &mut impl FnMut(&Snapshot) -> Decision,
) -> Result<Option<ToldOutcome>, ChangeError> {
    let is_fresh = matches!(basis, Basis::Fresh);
    let (before, assumed) = match basis {
        Basis::Fresh => (orders.rows.load_order_with(id, offer).await?.ok_or(ChangeError::NotFound)?, None),
        Basis::Seen(seen) => (seen, None),
        Basis::Kept(FoundOrder { snapshot, assumed }) => (snapshot, Some(assumed)),
    };
    let change = match decide(&before) {
        Decision::Change(change) => change,
        // Only a write is checked against the row, so a result without a write needs a fresh snapshot.
        Decision::Unchanged | Decision::Refuse(_) if !is_fresh => return Ok(None),
        Decision::Unchanged => return Ok(Some(unchanged(before))),
        Decision::Refuse(refusal) => return Err(refusal.into()),
    };
    outcome_of(&before, commit_change(orders, &before, *change, assumed).await)
}

/// Returns an outcome without changes and Redis updates.
fn unchanged(before: Snapshot) -> ToldOutcome {
    (ChangeOutcome::No(Box::new(before)), ChangeNews::default())
}

fn outcome_of(
    before: &Snapshot,
    committed: Result<CommittedChange, ApplyError>,
) -> Result<Option<ToldOutcome>, ChangeError> {
    match committed {
        Ok(CommittedChange { after, news }) => {
            Ok(Some((ChangeOutcome::Yes(Box::new(ChangedOrder::new(before, after))), news)))
        }
        Err(ApplyError::Conflict) => Ok(None),
        Err(ApplyError::Refused(refusal)) => Err(refusal.into()),
        Err(ApplyError::Database(e)) => Err(e.into()),
    }
}

/// Writes a change decided on `before`, completely or not at all. Returns the order after the change.
pub async fn apply_change(orders: &Orders, before: &Snapshot, change: Change) -> Result<Snapshot, ApplyError> {
    apply_change_at(orders, before, change, None).await
}

/// Writes a change like [`apply_change`]. `assumed` is the time of a decision on a kept order.
pub(crate) async fn apply_change_at(
    orders: &Orders,
    before: &Snapshot,
    change: Change,
    assumed: Option<AssumedTime>,
) -> Result<Snapshot, ApplyError> {
    let committed = commit_change(orders, before, change, assumed);
    let committed = committed.instrument(traces::change_span(&before.order.id)).await?;
    committed.news.tell(orders).await;
    Ok(committed.after)
}

/// Room that the area of an order must have for a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AreaRoom<'a> {
    pub(crate) area: &'a AreaId,
    /// The change is written only while fewer orders wait.
    pub(crate) limit: i64,
}

/// Writes a change like [`apply_change`], on condition that the area has room. Postgres counts under the lock of the
/// area, in the transaction of the change. Returns `None` if the area is full.
pub(crate) async fn apply_change_with_room(
    orders: &Orders,
    before: &Snapshot,
    change: Change,
    room: AreaRoom<'_>,
) -> Result<Option<Snapshot>, ApplyError> {
    let change = Arc::new(with_settings(orders, before, change));
    let write_id = Uuid::now_v7();
    let mut tx = orders.core.db.begin().await?;
    let has_room: bool = sqlx::query_scalar(
        "-- take place at start
         SELECT dispatchq_take_place($1, $2, $3, $4)",
    )
    .bind(before.order.id.as_str())
    .bind(room.area)
    .bind(&before.order.service_type)
    .bind(room.limit)
    .fetch_one(&mut *tx)
    .await?;
    if !has_room {
        return Ok(None);
    }
    let routes = &orders.config.notifications;
    let written = match write_change(&mut tx, routes, before, &change, None, write_id).await {
        Ok(after) => tx.commit().await.map(|()| after).map_err(ApplyError::from),
        Err(error) => Err(error),
    };
    let committed = follow_up(orders, before, &change, write_id, written)?;
    committed.news.tell(orders).await;
    Ok(Some(committed.after))
}

/// Commits a change, in a batch if possible.
async fn commit_change(
    orders: &Orders,
    before: &Snapshot,
    change: Change,
    assumed: Option<AssumedTime>,
) -> Result<CommittedChange, ApplyError> {
    let change = Arc::new(with_settings(orders, before, change));
    let write_id = Uuid::now_v7();
    let written = match write_once(orders, before, &change, assumed, write_id).await {
        // The connection was lost, possibly after the commit. The row shows whether it was written.
        Err(ApplyError::Database(error)) if classify_error(&error) == DatabaseFailure::OutcomeUnknown => {
            match orders.rows.find_written(&before.order.id, write_id).await {
                Ok(Some(after)) => Ok(after),
                Ok(None) | Err(_) => Err(error.into()),
            }
        }
        written => written,
    };
    follow_up(orders, before, &change, write_id, written)
}

async fn write_once(
    orders: &Orders,
    before: &Snapshot,
    change: &Arc<Change>,
    assumed: Option<AssumedTime>,
    write_id: Uuid,
) -> Result<Snapshot, ApplyError> {
    let routes = &orders.config.notifications;
    match write_with_others(orders, before, change, assumed, write_id).await {
        Some(written) => written,
        None => write_change(&mut orders.core.db.acquire().await?, routes, before, change, assumed, write_id).await,
    }
}

/// Completes a change from the settings. A change that starts a trip or a leg of one gets the time at which it is
/// stale. A change to a refund status records whether the payment service is asked or the refund is done.
fn with_settings(orders: &Orders, before: &Snapshot, mut change: Change) -> Change {
    let status = change.order.status;
    if status == before.order.status {
        return change;
    }
    if status.occupies_driver() {
        change.order.trip_deadline =
            trip::step_deadline(&orders.areas.policy_for_order(&change.order), status, change.at);
    }
    match status {
        OrderStatus::RefundPending if orders.payments.is_some() && money::may_ask_service(before) => {
            change.refund = Some(RefundChange::Ask);
        }
        OrderStatus::Refunded if change.refund.is_none() => change.refund = Some(RefundChange::Done(None)),
        _ => {}
    }
    change
}

/// Counts a change that was committed or failed, and prepares the Redis updates.
fn follow_up(
    orders: &Orders,
    before: &Snapshot,
    change: &Change,
    write_id: Uuid,
    written: Result<Snapshot, ApplyError>,
) -> Result<CommittedChange, ApplyError> {
    if before.order.status == OrderStatus::Compensating && change.order.status.is_closed() {
        metrics::record_status_update(written.as_ref().err());
    }
    match written {
        Ok(after) => {
            orders.kept.keep(&after, write_id, orders.core.clock.now());
            metrics::record_update(true);
            let failure = RetrievalFailure::between(before, &after);
            metrics::record_change(before, change, failure);
            if let Some(failure) = failure {
                retrieval_log::log_failure(&after, failure);
            }
            retrieval_log::log_compensation(before, &after);
            let news = ChangeNews {
                waiting: waiting::build_update(
                    &orders.areas.rules.get(),
                    before.order.status.is_searching(),
                    &after.order,
                    after.now,
                ),
                gate: accept_gate::begin_update(orders, before, change, &after),
                freed: freed::freed_drivers(before, change),
            };
            Ok(CommittedChange { after, news })
        }
        Err(error) => {
            orders.kept.forget(&before.order.id);
            if matches!(error, ApplyError::Conflict) {
                metrics::record_update(false);
            }
            Err(error)
        }
    }
}
