//! Decisions on expired deadlines.

use super::{Binding, BindingChange, BindingPhase, CallEnding, StopReason, TimeoutPolicy, change::DecisionMoment};
use crate::actor::Actor;

/// Decides what is overdue without a call: a missing OTP, or a transaction whose status could not be requested.
///
/// Normally the claim asks once more about an overdue transaction. This function is for a job that may not call now,
/// such as while the server's breaker is open. A lost call ends together with its transaction. Returns `None` if
/// nothing is overdue.
pub fn decide_deadline(binding: &Binding, moment: DecisionMoment) -> Option<BindingChange> {
    let now = moment.now;
    let overdue = binding.is_overdue(now);
    let mut change = BindingChange::new(binding, &Actor::SYSTEM, now);
    match binding.phase {
        BindingPhase::WaitingOtp if binding.otp_value.is_none() => {
            binding.otp_deadline.filter(|deadline| *deadline <= now)?;
            change.fail_cycle(StopReason::OtpTimeout.as_str(), None, moment);
            if binding.config.on_otp_timeout == TimeoutPolicy::Stop {
                change.stop_for(StopReason::OtpTimeout);
            }
        }
        BindingPhase::Processing | BindingPhase::WaitingOtp if overdue => change.leave_unresolved(moment),
        BindingPhase::Calling if overdue && binding.call_until.is_some_and(|until| until <= now) => {
            change.end_call(CallEnding::LOST);
            change.leave_unresolved(moment);
            change.complete_stop();
        }
        _ => return None,
    }
    Some(change)
}
