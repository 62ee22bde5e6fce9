//! Decides on an order, has the change written, and tells those who go by it: metrics, and who waits in its area.

use jobs::OrderId;
use model::{
    decide::{Change, Decision, OrderRefusal, trip},
    ids::OfferId,
    order::{OrderStatus, Snapshot},
};

use super::{
    metrics,
    store::{
        load_order_with,
        write::{ApplyError, write_change},
    },
};
use crate::{
    admission::waiting,
    app::App,
    db::{Connection, DatabaseFailure, classify_error},
    error::ServiceError,
};

/// Attempts at a change before its maker waits for its turn.
const MAX_CONFLICTS: usize = 4;
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
            busy @ ChangeError::Busy => Self::Incomplete(busy.to_string()),
            refused => Self::Unusable(refused.to_string()),
        }
    }
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
