//! Requirement: docs/requirements/orchestration.md.
//!
//! `cycle:{binding}:{n}`: makes the next call of cycle n of a binding.

use bindings::capability::Bindings;
use jobs::RunCycle;
use queue::{Delivery, Outcome};

use crate::binding_run::run_binding;

pub async fn perform_cycle(bindings: Bindings, job: RunCycle, delivery: Delivery) -> Outcome {
    run_binding(&bindings, &job.binding, None, &delivery).await
}
