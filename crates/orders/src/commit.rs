//! Commits a decided change. Then counts it, logs it, keeps the order, and prepares the effects.

use std::sync::Arc;

use model::{
    decide::{Change, RefundChange, money, trip},
    order::{OrderStatus, Snapshot},
    partner::RetrievalFailure,
};
use uuid::Uuid;

use crate::{
    capability::Orders,
    changed::{Changed, Effects},
    metrics, retrieval_log,
    seen::SeenOrder,
    write_error::WriteError,
    writing::Decided,
};
use foundation::db::{DatabaseFailure, Transaction, classify_error};

/// Commits a change decided on `seen`, completely or not at all.
pub(crate) async fn commit(orders: &Orders, seen: SeenOrder, change: Change) -> Result<Changed, WriteError> {
    let assumed = seen.assumed;
    let before = seen.into_snapshot();
    let change = Arc::new(with_settings(orders, &before, change));
    let decided = Decided { before: &before, change: &change, assumed, write_id: Uuid::now_v7() };
    let write_id = decided.write_id;
    let written = find_if_lost(orders, &before, write_id, decided.write(orders).await).await;
    follow_up(orders, before, &change, write_id, written)
}

/// Writes a change in this transaction, which has locked the row, and commits the transaction.
pub(crate) async fn within(
    orders: &Orders,
    tx: Transaction<'_>,
    before: Snapshot,
    change: Change,
) -> Result<Changed, WriteError> {
    let change = Arc::new(with_settings(orders, &before, change));
    let decided = Decided { before: &before, change: &change, assumed: None, write_id: Uuid::now_v7() };
    let write_id = decided.write_id;
    let written = find_if_lost(orders, &before, write_id, decided.write_locked(orders, tx).await).await;
    follow_up(orders, before, &change, write_id, written)
}

/// Looks up a change whose connection was lost, possibly after the commit. The row shows whether it was written.
async fn find_if_lost(
    orders: &Orders,
    before: &Snapshot,
    write_id: Uuid,
    written: Result<Snapshot, WriteError>,
) -> Result<Snapshot, WriteError> {
    match written {
        Err(WriteError::Database(error)) if classify_error(&error) == DatabaseFailure::OutcomeUnknown => {
            match orders.rows.find_written(&before.order.id, write_id).await {
                Ok(Some(after)) => Ok(after),
                Ok(None) | Err(_) => Err(error.into()),
            }
        }
        written => written,
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

/// Counts a change that was committed or failed, and prepares the effects.
fn follow_up(
    orders: &Orders,
    before: Snapshot,
    change: &Change,
    write_id: Uuid,
    written: Result<Snapshot, WriteError>,
) -> Result<Changed, WriteError> {
    if before.order.status == OrderStatus::Compensating && change.order.status.is_closed() {
        metrics::record_status_update(written.as_ref().err());
    }
    let after = written.inspect_err(|error| {
        orders.kept.forget(&before.order.id);
        if matches!(error, WriteError::Conflict) {
            metrics::record_update(false);
        }
    })?;
    orders.kept.keep(&after, write_id, orders.core.clock.now());
    metrics::record_update(true);
    let failure = RetrievalFailure::between(&before, &after);
    metrics::record_change(&before, change, failure);
    if let Some(failure) = failure {
        retrieval_log::log_failure(&after, failure);
    }
    retrieval_log::log_compensation(&before, &after);
    let effects = Effects::new(orders, &before, change, &after);
    Ok(Changed { before: Box::new(before), after: Box::new(after), effects })
}
