//! Requirement: docs/requirements/orchestration.md.
//!
//! `settle:{binding}:{n}`: asks the provider for the outcome of a transaction whose cycle was left UNRESOLVED.

use bindings::capability::Bindings;
use jobs::SettleTransaction;
use queue::{Delivery, Outcome};

use crate::binding_run::run_binding;

pub async fn perform_settle(bindings: Bindings, job: SettleTransaction, delivery: Delivery) -> Outcome {
    run_binding(&bindings, &job.binding, Some(job.cycle), &delivery).await
}
