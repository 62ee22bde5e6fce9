//! Decisions on the answers of a provider.

use super::{
    Binding, BindingChange, BindingEventKind, BindingNotice, BindingPhase, BindingState, CallAction, FailureReason,
    ProviderAnswer, StopReason, TimeoutPolicy, TransactionStatus, change::DecisionMoment, claim::settle_pause,
};
use crate::actor::Actor;
use chrono::TimeDelta;

/// Header reasons that do not come from the provider.
pub const UNKNOWN_AT_PROVIDER: &str = "unknown_at_provider";
pub const REJECTED: &str = "rejected";
pub const OTP_REJECTED: &str = "otp_rejected";

#[derive(Debug, Clone, PartialEq)]
pub enum AnswerDecision {
    Write(Box<BindingChange>),
    /// The call was counted as lost and its record has ended, so the answer changes nothing.
    Stale,
}

pub fn decide_answer(
    binding: &Binding,
    call_no: i64,
    answer: &ProviderAnswer,
    moment: DecisionMoment,
) -> AnswerDecision {
    let Some(action) = binding.call_action.filter(|_| binding.has_open_call() && binding.call_no == call_no) else {
        return AnswerDecision::Stale;
    };
    let mut change = BindingChange::new(binding, &Actor::SYSTEM, moment.now);
    change.end_call(answer.label());
    if action == CallAction::Settle {
        settle_header(&mut change, answer);
    } else {
        change.follow_answer(binding, action, answer, moment);
    }
    change.complete_stop();
    AnswerDecision::Write(Box::new(change))
}

/// Applies an answer about an earlier cycle. It never stops the binding: a low balance shows at the next start.
fn settle_header(change: &mut BindingChange, answer: &ProviderAnswer) {
    let ended = match answer {
        ProviderAnswer::Success { provider_ref } => Some((TransactionStatus::Sukses, None, provider_ref.clone())),
        ProviderAnswer::Failed { reason, provider_ref } => {
            Some((TransactionStatus::Gagal, Some(reason.as_str().to_owned()), provider_ref.clone()))
        }
        ProviderAnswer::UnknownTransaction => {
            Some((TransactionStatus::Gagal, Some(UNKNOWN_AT_PROVIDER.to_owned()), None))
        }
        // The binding has moved on, so the OTP will not be submitted.
        ProviderAnswer::OtpWanted { provider_ref } => {
            Some((TransactionStatus::Gagal, Some(StopReason::OtpTimeout.to_string()), provider_ref.clone()))
        }
        _ => None,
    };
    if let Some((status, reason, provider_ref)) = ended {
        change.move_header(status, reason, provider_ref, None);
        change.settled = change.binding.trx_id.clone();
        change.binding.unresolved -= 1;
    }
    change.binding.phase = BindingPhase::Idle;
    change.binding.trx_id = None;
}

impl BindingChange {
    fn follow_answer(&mut self, before: &Binding, action: CallAction, answer: &ProviderAnswer, moment: DecisionMoment) {
        match answer {
            ProviderAnswer::Success { provider_ref } => {
                self.finish_cycle(TransactionStatus::Sukses, None, provider_ref.clone());
                self.binding.failures = 0;
                self.begin_next_after_interval(moment);
            }
            ProviderAnswer::Failed { reason: reason @ FailureReason::InsufficientBalance, provider_ref } => {
                let reason = Some(reason.as_str().to_owned());
                self.finish_cycle(TransactionStatus::Gagal, reason, provider_ref.clone());
                self.force_stop(StopReason::InsufficientBalanceBeforeStart);
            }
            ProviderAnswer::Failed { reason: FailureReason::WrongOtp, .. } | ProviderAnswer::OtpWanted { .. }
                if action == CallAction::Otp =>
            {
                self.count_otp();
                self.want_otp(None, moment);
            }
            ProviderAnswer::OtpWanted { provider_ref } => self.want_otp(provider_ref.clone(), moment),
            ProviderAnswer::Failed { reason, provider_ref } => {
                self.fail_cycle(reason.as_str(), provider_ref.clone(), moment);
            }
            ProviderAnswer::UnknownTransaction if action != CallAction::Start && !before.start_confirmed => {
                // The start never arrived, so this is no failure of the binding. After a confirmed start, or as the
                // answer to a start, it is one: the server does not know the account, or is the wrong server.
                self.finish_cycle(TransactionStatus::Gagal, Some(UNKNOWN_AT_PROVIDER.to_owned()), None);
                self.begin_next_after_cooldown(moment);
            }
            ProviderAnswer::UnknownTransaction => self.fail_cycle(UNKNOWN_AT_PROVIDER, None, moment),
            // After a repeated start this answer proves nothing: an earlier start may have started the transaction.
            ProviderAnswer::Rejected(_) if action == CallAction::Start && before.asks == 0 => {
                self.fail_cycle(REJECTED, None, moment);
            }
            ProviderAnswer::Processing { provider_ref } => {
                self.binding.start_confirmed = true;
                self.move_header(TransactionStatus::Processing, None, provider_ref.clone(), None);
                if action == CallAction::Otp {
                    self.count_otp();
                }
                self.ask_later(TimeDelta::zero(), moment);
            }
            // The answer has no meaning here, so the provider is asked for the status and the call is not repeated.
            ProviderAnswer::Unreadable(_) | ProviderAnswer::Rejected(_) => {
                self.binding.start_confirmed = true;
                if action == CallAction::Otp {
                    self.count_otp();
                }
                self.ask_later(TimeDelta::zero(), moment);
            }
            ProviderAnswer::LateRefused(_)
            | ProviderAnswer::Throttled { .. }
            | ProviderAnswer::Unavailable(_)
            | ProviderAnswer::Unreachable(_) => {
                let pause = match answer {
                    ProviderAnswer::Throttled { retry_in: Some(pause) } => {
                        TimeDelta::from_std(*pause).unwrap_or(TimeDelta::hours(1))
                    }
                    _ => TimeDelta::zero(),
                };
                self.ask_later(pause, moment);
                if matches!(answer, ProviderAnswer::Unreachable(_)) && !self.binding.is_at_rest() {
                    // The provider may work on the call until then, even after the deadline of the transaction.
                    self.binding.next_at = self.binding.next_at.max(before.call_until);
                }
                let stops = matches!(before.state, BindingState::Stopping | BindingState::Stopped);
                if action == CallAction::Otp && !self.binding.is_at_rest() {
                    if stops {
                        self.count_otp();
                    } else {
                        self.binding.phase = BindingPhase::WaitingOtp;
                    }
                }
            }
        }
    }

    /// Marks the OTP as used up: its call has a result, or is not repeated.
    pub(super) fn count_otp(&mut self) {
        self.erase_otp();
        self.binding.otp_tries = self.binding.otp_tries.saturating_add(1);
    }

    fn want_otp(&mut self, provider_ref: Option<String>, moment: DecisionMoment) {
        if matches!(self.binding.state, BindingState::Stopping | BindingState::Stopped) {
            let reason = self.binding.reason.unwrap_or(StopReason::ManualStop);
            self.finish_cycle(TransactionStatus::Gagal, Some(reason.to_string()), provider_ref);
            return;
        }
        if self.binding.otp_tries.unsigned_abs() >= self.binding.config.otp_attempts {
            self.fail_cycle(OTP_REJECTED, provider_ref, moment);
            return;
        }
        self.move_header(TransactionStatus::WaitingOtp, None, provider_ref, None);
        self.binding.phase = BindingPhase::WaitingOtp;
        self.binding.start_confirmed = true;
        self.binding.next_at = None;
        let deadline = moment.now + self.binding.config.otp_timeout();
        self.binding.otp_deadline = Some(deadline);
        self.record_event(BindingEventKind::OtpWanted, None);
        if let Some(trx_id) = self.binding.trx_id.clone() {
            let ask = self.binding.otp_tries.saturating_add(1);
            self.notices.push(BindingNotice::OtpWanted { trx_id, ask, deadline });
        }
    }

    /// Schedules the next status request after `least` or the next pause, but not after the transaction's deadline.
    /// After the deadline the transaction becomes UNRESOLVED.
    fn ask_later(&mut self, least: TimeDelta, moment: DecisionMoment) {
        if self.binding.is_overdue(moment.now) {
            self.leave_unresolved(moment);
            return;
        }
        let row = &mut self.binding;
        row.asks = row.asks.saturating_add(1);
        row.phase = BindingPhase::Processing;
        let next_at = moment.now + row.config.ask_pause(row.asks).max(least);
        row.next_at = Some(row.processing_deadline.map_or(next_at, |deadline| next_at.min(deadline)));
    }

    /// Marks the open transaction as UNRESOLVED because it took too long. A separate job asks about it. The binding
    /// continues or stops.
    pub(super) fn leave_unresolved(&mut self, moment: DecisionMoment) {
        let reason = StopReason::ProcessingTimeout.to_string();
        self.move_header(TransactionStatus::Unresolved, Some(reason), None, Some(moment.now + settle_pause(1)));
        let trx_id = self.binding.trx_id.clone();
        self.record_event(BindingEventKind::Unresolved, trx_id.as_ref().map(ToString::to_string));
        if let Some(trx_id) = trx_id {
            let deadline = self.binding.processing_deadline.unwrap_or(self.at);
            self.notices.push(BindingNotice::Unresolved { trx_id, deadline });
        }
        self.rest_row();
        self.binding.unresolved += 1;
        if self.binding.config.on_processing_timeout == TimeoutPolicy::Stop {
            self.stop_for(StopReason::ProcessingTimeout);
        }
        self.begin_next_after_interval(moment);
    }
}
