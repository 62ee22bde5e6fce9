//! Requirement: docs/requirements/server-busy.md. Queue: `lifetime-cancel-queue`.
//!
//! `lifetime:{order}`: ends an order that found no driver in time. COMPENSATING is written first; what that means for
//! the payment is the compensate job's work.

use jobs::ExpireOrder;
use model::fleet::decide;

use orders::{capability::Orders, step};
use queue::{Job, Outcome};

pub async fn perform_lifetime(orders: Orders, job: ExpireOrder) -> Outcome {
    step::decide_sync(&orders, &job.order, &job.id(), decide::end_lifetime).await
}
