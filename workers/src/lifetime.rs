//! Requirement: docs/requirements/server-busy.md. Queue: `lifetime-cancel-queue`.
//!
//! `lifetime:{order}`: ends an order that found no driver in time. It writes COMPENSATING; the compensate job then
//! handles the payment.

use jobs::ExpireOrder;
use model::fleet::decide;

use orders::{capability::Orders, step};
use queue::{Job, Outcome};

pub async fn perform_lifetime(orders: Orders, job: ExpireOrder) -> Outcome {
    step::outcome_of(&orders.core, step::decide_sync(&orders, &job.order, &job.id(), decide::end_lifetime).await)
}
