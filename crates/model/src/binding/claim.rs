//! Decides whether a job may call the provider now, and what is written before the call.
//!
//! Missed ticks coalesce: only the row decides what is due. The next due time counts from now, or from a due time less
//! than one interval ago.

use chrono::{DateTime, TimeDelta, Utc};

use super::{
    Binding, BindingChange, BindingPhase, BindingState, CallAction, CallEnding, HeaderChange, ProviderCall,
    TransactionHeader, TransactionStatus, TrxId, change::DecisionMoment, decide_deadline,
};
use crate::actor::Actor;

/// First pause before the provider is asked about an UNRESOLVED transaction.
const FIRST_SETTLE: TimeDelta = TimeDelta::seconds(30);
const LONGEST_SETTLE: TimeDelta = TimeDelta::hours(1);
/// Time after its submission in which workers may still get the key of a stored OTP. Keys are changed worker by worker.
const OTP_KEY_WAIT: TimeDelta = TimeDelta::seconds(30);
const OTP_KEY_RETRY: TimeDelta = TimeDelta::seconds(5);
/// Pause before an UNRESOLVED transaction is asked about again while another transaction is open.
const SETTLE_LATER: TimeDelta = TimeDelta::seconds(5);

/// Rules for calls, from the server's row and the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRules {
    /// Added to the call timeout. By then the provider has ended the call, even with clock differences.
    pub margin: TimeDelta,
    /// Whether a start with an unknown result may be repeated under its key. Otherwise the provider is asked for the
    /// status.
    pub repeats_are_safe: bool,
    /// Whether this worker can decrypt the stored OTP, if there is one.
    pub otp_is_readable: bool,
}

/// A call that may be made after its change is written.
#[derive(Debug, Clone, PartialEq)]
pub struct CallClaim {
    pub change: BindingChange,
    pub call: ProviderCall,
}

/// Action of a job that fires.
#[derive(Debug, Clone, PartialEq)]
pub enum ClaimDecision {
    Call(Box<CallClaim>),
    /// No call. Only the change is written, and the timers follow from the row.
    Write(Box<BindingChange>),
    /// Nothing is due before this time.
    NotYet(DateTime<Utc>),
    Nothing,
}

/// Returns the pause before status request number `ask` (from 1) about an UNRESOLVED transaction.
pub fn settle_pause(ask: i32) -> TimeDelta {
    let doublings = ask.clamp(1, 10) - 1;
    (FIRST_SETTLE * (1 << doublings)).min(LONGEST_SETTLE)
}

/// Decides for the job of the cycle or of the OTP.
pub fn decide_claim(binding: &Binding, rules: CallRules, moment: DecisionMoment) -> ClaimDecision {
    if binding.deleted_at.is_some() {
        return ClaimDecision::Nothing;
    }
    let now = moment.now;
    let due = binding.next_at.unwrap_or(now);
    match binding.phase {
        BindingPhase::Calling => match binding.call_until {
            Some(until) if until > now => ClaimDecision::NotYet(until),
            _ => go_on_after_loss(binding, rules, moment),
        },
        BindingPhase::Idle if binding.state != BindingState::Running => ClaimDecision::Nothing,
        BindingPhase::Idle if due > now => ClaimDecision::NotYet(due),
        BindingPhase::Idle => begin_cycle(binding, rules, now),
        BindingPhase::Processing if due > now => ClaimDecision::NotYet(due),
        BindingPhase::Processing => claim_call(binding, ask_action(binding, rules, now), rules, now),
        BindingPhase::WaitingOtp if binding.otp_value.is_some() && due > now => ClaimDecision::NotYet(due),
        BindingPhase::WaitingOtp if binding.otp_value.is_some() => claim_otp(binding, rules, now),
        BindingPhase::WaitingOtp => match (decide_deadline(binding, moment), binding.otp_deadline) {
            (Some(change), _) => ClaimDecision::Write(Box::new(change)),
            (None, Some(deadline)) => ClaimDecision::NotYet(deadline),
            (None, None) => ClaimDecision::Nothing,
        },
    }
}

/// Decides for the job of an UNRESOLVED transaction. The provider is asked only between cycles, because the row holds
/// one call.
pub fn decide_settle(
    binding: &Binding,
    header: &TransactionHeader,
    rules: CallRules,
    now: DateTime<Utc>,
) -> ClaimDecision {
    if header.status != TransactionStatus::Unresolved || binding.deleted_at.is_some() {
        return ClaimDecision::Nothing;
    }
    if let Some(at) = header.settle_at.filter(|at| *at > now) {
        return ClaimDecision::NotYet(at);
    }
    if !binding.is_at_rest() {
        let open_until = binding.call_until.filter(|until| *until > now);
        return ClaimDecision::NotYet(open_until.unwrap_or(now + SETTLE_LATER));
    }
    let mut change = BindingChange::new(binding, &Actor::SYSTEM, now);
    let asks = header.asks.saturating_add(1);
    // The next request is due at `settle_at`. So a request that is lost needs no further write.
    change.header = Some(HeaderChange::Ask { cycle: header.cycle, asks, settle_at: now + settle_pause(asks) });
    change.binding.trx_id = Some(header.trx_id.clone());
    let call = change.open_call(CallAction::Settle, Some(header), rules.margin);
    ClaimDecision::Call(Box::new(CallClaim { change, call }))
}

/// Returns the next action for the open transaction. An unconfirmed start is repeated while the binding is RUNNING and
/// the transaction is not overdue. Otherwise the provider is only asked for the status.
fn ask_action(binding: &Binding, rules: CallRules, now: DateTime<Utc>) -> CallAction {
    let repeats = !binding.start_confirmed
        && !binding.is_overdue(now)
        && binding.state == BindingState::Running
        && rules.repeats_are_safe;
    if repeats { CallAction::Start } else { CallAction::Status }
}

/// Claims the call with the stored OTP. An OTP that was submitted in time is sent however late its job runs. After the
/// deadline of the transaction nothing is repeated. An OTP that cannot be decrypted is dropped after a while; the
/// provider is then asked for the status and requests a new one.
fn claim_otp(binding: &Binding, rules: CallRules, now: DateTime<Utc>) -> ClaimDecision {
    let is_over = binding.is_overdue(now) && binding.has_tried_otp();
    if !is_over && rules.otp_is_readable {
        return claim_call(binding, CallAction::Otp, rules, now);
    }
    let given_up_at = binding.otp_submitted_at.map_or(now, |submitted_at| submitted_at + OTP_KEY_WAIT);
    if !is_over && now < given_up_at {
        return ClaimDecision::NotYet(given_up_at.min(now + OTP_KEY_RETRY));
    }
    let mut change = BindingChange::new(binding, &Actor::SYSTEM, now);
    change.count_otp();
    let call = change.open_call(CallAction::Status, None, rules.margin);
    ClaimDecision::Call(Box::new(CallClaim { change, call }))
}

fn begin_cycle(binding: &Binding, rules: CallRules, now: DateTime<Utc>) -> ClaimDecision {
    let mut change = BindingChange::new(binding, &Actor::SYSTEM, now);
    let row = &mut change.binding;
    row.cycle += 1;
    let trx_id = TrxId::new(&row.id, row.cycle);
    row.trx_id = Some(trx_id.clone());
    row.start_confirmed = false;
    (row.asks, row.otp_tries) = (0, 0);
    row.processing_deadline = Some(now + row.config.processing_timeout());
    row.interval_start = Some(find_interval_start(binding, now));
    let header = TransactionHeader {
        trx_id,
        binding_id: row.id.clone(),
        cycle: row.cycle,
        server_id: row.server_id.clone(),
        account_id: row.account_id.clone(),
        status: TransactionStatus::Started,
        reason: None,
        provider_ref: None,
        asks: 0,
        settle_at: None,
        started_at: now,
        ended_at: None,
    };
    change.header = Some(HeaderChange::Begin(Box::new(header)));
    let call = change.open_call(CallAction::Start, None, rules.margin);
    ClaimDecision::Call(Box::new(CallClaim { change, call }))
}

/// Returns the due time of a cycle that starts now. After an outage, or a wait for slots that exceeded the interval,
/// this is the current time: one cycle replaces the missed ones.
fn find_interval_start(binding: &Binding, now: DateTime<Utc>) -> DateTime<Utc> {
    let due = binding.next_at.map_or(now, |due| due.min(now));
    if now - due < binding.config.interval_ms.least_delta() { due } else { now }
}

fn claim_call(binding: &Binding, action: CallAction, rules: CallRules, now: DateTime<Utc>) -> ClaimDecision {
    let mut change = BindingChange::new(binding, &Actor::SYSTEM, now);
    let call = change.open_call(action, None, rules.margin);
    ClaimDecision::Call(Box::new(CallClaim { change, call }))
}

/// Continues after a lost call: the caller died or could not write the result. The call is closed, because the provider
/// ends every call by `Call-Until`.
fn go_on_after_loss(binding: &Binding, rules: CallRules, moment: DecisionMoment) -> ClaimDecision {
    let now = moment.now;
    let action = binding.call_action.unwrap_or(CallAction::Status);
    let mut change = BindingChange::new(binding, &Actor::SYSTEM, now);
    change.end_call(CallEnding::LOST);
    if action != CallAction::Settle {
        change.binding.asks = binding.asks.saturating_add(1);
    }
    if action == CallAction::Settle {
        change.binding.phase = BindingPhase::Idle;
        change.binding.trx_id = None;
        change.complete_stop();
        return ClaimDecision::Write(Box::new(change));
    }
    if binding.state == BindingState::Stopping {
        // The provider is asked for the effect of the lost call. An OTP is not submitted again.
        if action == CallAction::Otp {
            change.count_otp();
        }
        change.binding.phase = BindingPhase::Processing;
        change.binding.next_at = Some(now);
        change.complete_stop();
        return ClaimDecision::Write(Box::new(change));
    }
    if action.is_read() && binding.call_until > binding.processing_deadline {
        // The status request at the deadline was lost too. Only the row decides, because the configuration may have
        // changed since.
        change.leave_unresolved(moment);
        return ClaimDecision::Write(Box::new(change));
    }
    let again = match action {
        CallAction::Otp if binding.otp_value.is_some() && rules.otp_is_readable && !binding.is_overdue(now) => {
            CallAction::Otp
        }
        _ => ask_action(binding, rules, now),
    };
    if action == CallAction::Otp && again != CallAction::Otp {
        change.count_otp();
    }
    let call = change.open_call(again, None, rules.margin);
    ClaimDecision::Call(Box::new(CallClaim { change, call }))
}
