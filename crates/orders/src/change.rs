//! Changes of orders. Design: docs/design/order-writes.md.
//!
//! [`Orders::change`] is the only way to change an order: it decides on the order, writes the change on condition that
//! the row is unchanged, and returns the effects that the caller runs. Repeating a change is harmless.

use jobs::OrderId;
use model::{
    decide::{Change, Decision, OrderRefusal},
    ids::OfferId,
    order::Snapshot,
};
use tracing::Instrument;

use crate::{
    capability::Orders,
    changed::Changed,
    commit,
    kept::assert_equals_row,
    order_store::load::load_order_with,
    seen::{Basis, SeenOrder},
    write_error::WriteError,
};
use foundation::{
    db::{DatabaseFailure, classify_error, is_rolled_back_for_another},
    error::ServiceError,
    traces,
};

/// Number of attempts at a change without a row lock. The next attempt locks the row.
const MAX_CONFLICTS: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("no order with this id")]
    NotFound,
    #[error(transparent)]
    Refused(#[from] OrderRefusal),
    #[error("the order is changing too quickly; try again")]
    Busy,
    /// The area of the order has no room for the change.
    #[error("the area of the order is full")]
    NoRoom,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl From<WriteError> for ChangeError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Conflict => Self::Busy,
            WriteError::NoRoom => Self::NoRoom,
            WriteError::Refused(refusal) => Self::Refused(refusal),
            WriteError::Database(error) => Self::Database(error),
        }
    }
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

impl Orders {
    /// Decides and writes. Decides again on the row if another change was written first.
    ///
    /// # Errors
    /// Fails if the order does not exist, the decision refuses, other changes keep winning, the area is full, or
    /// Postgres fails. Nothing is written then, unless the answer of Postgres was lost.
    pub async fn change(
        &self,
        id: &OrderId,
        basis: Basis,
        decide: impl FnMut(&Snapshot) -> Decision,
    ) -> Result<Changed, ChangeError> {
        decide_until_written(self, id, basis, decide).instrument(traces::change_span(id)).await
    }
}

/// Returns the decision to write this change, which was made on the order of [`Basis::Seen`]. If another change was
/// written first, the decision is to change nothing: the caller decides again.
pub fn decided(change: Change) -> impl FnMut(&Snapshot) -> Decision {
    let mut change = Some(change);
    move |_| change.take().map_or(Decision::Unchanged, Decision::from)
}

/// An error after which nothing was written, if the row still has this version.
struct FailedWrite {
    version: i64,
    error: sqlx::Error,
}

async fn decide_until_written(
    orders: &Orders,
    id: &OrderId,
    basis: Basis,
    mut decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<Changed, ChangeError> {
    let offer = basis.offer();
    let mut seen = match basis {
        Basis::Seen(seen) => Some(*seen),
        Basis::Fresh | Basis::Offer(_) => find_kept(orders, id, offer).await?,
    };
    let mut lost_answer = false;
    let mut failed = None;
    for _ in 0..MAX_CONFLICTS {
        let is_fresh = seen.is_none();
        let order = match seen.take() {
            Some(seen) => seen,
            None => SeenOrder::new(orders.rows.load_order_with(id, offer).await?.ok_or(ChangeError::NotFound)?),
        };
        let version = order.snapshot().order.version;
        let change = match decide(order.snapshot()) {
            Decision::Change(change) => *change,
            // Only a write is checked against the row, so a result without a write needs a fresh snapshot.
            Decision::Unchanged | Decision::Refuse(_) if !is_fresh => continue,
            Decision::Unchanged => return unchanged(order, failed),
            Decision::Refuse(refusal) => return Err(refusal.into()),
        };
        match commit::commit(orders, order, change).await {
            Ok(changed) => return Ok(changed),
            Err(WriteError::Conflict) => {}
            // The connection was lost, possibly after the commit. The row is read and decided on once more, on another
            // connection. If the change was committed, the second decision finds it done.
            Err(WriteError::Database(error))
                if !lost_answer && classify_error(&error) == DatabaseFailure::OutcomeUnknown =>
            {
                lost_answer = true;
                failed = Some(FailedWrite { version, error });
            }
            // Nothing was written.
            Err(WriteError::Database(error)) if is_rolled_back_for_another(&error) => {
                failed = Some(FailedWrite { version, error });
            }
            Err(error) => return Err(error.into()),
        }
    }
    decide_locked(orders, id, offer, decide).await
}

/// Returns the result of a decision to change nothing. After a failed write of a change that cannot be decided again,
/// the order is still as before, and the result is the error.
fn unchanged(order: SeenOrder, failed: Option<FailedWrite>) -> Result<Changed, ChangeError> {
    let order = order.into_snapshot();
    match failed {
        Some(FailedWrite { version, error }) if version == order.order.version => Err(error.into()),
        _ => Ok(Changed::nothing(order)),
    }
}

/// Decides with the row locked, because many changes compete. No other change can be written first.
async fn decide_locked(
    orders: &Orders,
    id: &OrderId,
    offer: Option<OfferId>,
    mut decide: impl FnMut(&Snapshot) -> Decision,
) -> Result<Changed, ChangeError> {
    orders.notify.endpoints.ensure_fresh(&orders.core).await?;
    let mut tx = orders.core.db.begin().await?;
    sqlx::query(
        "-- lock order
         SELECT 1 FROM orders WHERE id = $1 FOR UPDATE",
    )
    .bind(id.as_str())
    .execute(&mut *tx)
    .await?;
    let before = load_order_with(&mut *tx, id, offer).await?.ok_or(ChangeError::NotFound)?;
    match decide(&before) {
        Decision::Change(change) => Ok(commit::within(orders, tx, before, *change).await?),
        Decision::Unchanged => Ok(Changed::nothing(before)),
        Decision::Refuse(refusal) => Err(refusal.into()),
    }
}

/// Returns the order as this process last wrote it, if it is kept. Returns `None` while Postgres is slow: the write of a
/// decision on a kept order would then find that its time is wrong, and be made twice.
pub(crate) async fn find_kept(
    orders: &Orders,
    id: &OrderId,
    offer: Option<OfferId>,
) -> Result<Option<SeenOrder>, sqlx::Error> {
    let found = orders.kept.find(id, offer, orders.core.clock.now()).filter(|_| !orders.is_overloaded());
    if let Some(found) = found.as_ref().filter(|_| orders.kept.is_checked())
        && let Some(row) = orders.rows.load_order_with(id, offer).await?
    {
        assert_equals_row(found.snapshot(), &row);
    }
    Ok(found)
}
