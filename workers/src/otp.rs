//! Requirement: docs/requirements/orchestration.md.
//!
//! `otp:{binding}:{n}`: sends the OTP of cycle n to the provider, or ends the cycle if its OTP is overdue.

use bindings::capability::Bindings;
use jobs::SubmitOtp;
use queue::{Delivery, Outcome};

use crate::binding_run::run_binding;

pub async fn perform_otp(bindings: Bindings, job: SubmitOtp, delivery: Delivery) -> Outcome {
    run_binding(&bindings, &job.binding, None, &delivery).await
}
