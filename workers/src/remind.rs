//! Requirement: docs/requirements/dual-queue.md.
//!
//! `remind:{order}:{alert id}`: reminds dispatchers of an order that still waits for them.

use jobs::RemindDispatchers;
use orders::capability::Orders;
use queue::Outcome;

use crate::escalate::tell_again;

pub async fn perform_remind(orders: Orders, job: RemindDispatchers) -> Outcome {
    tell_again(&orders, &job.order, job.alert_id).await
}
