//! Requirement: docs/requirements/orchestration.md.
//!
//! `cycle:{binding}:{n}`: takes cycle n of a binding one call further.

use bindings::capability::Bindings;
use jobs::RunCycle;
use queue::{Delivery, Outcome};

use crate::binding_run::run_binding;

pub async fn perform_cycle(bindings: Bindings, job: RunCycle, delivery: Delivery) -> Outcome {
    run_binding(&bindings, &job.binding, None, &delivery).await
}
