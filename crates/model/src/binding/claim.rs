//! Whether a job may call the provider now, and what is written before it does.
//!
//! Ticks that were missed coalesce: what is due is decided by the row alone, and the next due time counts from now, or from a due time
//! that is less than an interval ago.

use chrono::{DateTime, TimeDelta, Utc};

use super::{
    Binding, BindingChange, BindingPhase, BindingState, CallAction, CallEnding, HeaderChange, ProviderCall,
    TransactionHeader, TransactionStatus, TrxId, change::DecisionMoment, decide_deadline,
};
use crate::actor::Actor;

/// First pause before an UNRESOLVED transaction is asked about.
const FIRST_SETTLE: TimeDelta = TimeDelta::seconds(30);
const LONGEST_SETTLE: TimeDelta = TimeDelta::hours(1);
/// Workers may have the key of a stored OTP for so long after it was handed in: keys are changed worker by worker.
const OTP_KEY_WAIT: TimeDelta = TimeDelta::seconds(30);
const OTP_KEY_RETRY: TimeDelta = TimeDelta::seconds(5);
/// An UNRESOLVED transaction is asked about between cycles; while one is open it waits for so long.
const SETTLE_LATER: TimeDelta = TimeDelta::seconds(5);

/// What the server's row and the configuration say of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRules {
    /// Added to the call timeout: by then the provider has ended the call, whatever the clocks say.
    pub margin: TimeDelta,
    /// Whether a start may be repeated under its key while it is not known what became of it. Otherwise it is asked about.
    pub repeats_are_safe: bool,
    /// Whether this worker can read the stored OTP, if one is stored.
    pub otp_is_readable: bool,
}

/// A call that may be made once its change is written.
#[derive(Debug, Clone, PartialEq)]
pub struct CallClaim {
    pub change: BindingChange,
    pub call: ProviderCall,
}

/// What a job that fires may do.
#[derive(Debug, Clone, PartialEq)]
pub enum ClaimDecision {
    Call(Box<CallClaim>),
    /// No call: only this is written, and the timers follow from the row.
    Write(Box<BindingChange>),
    /// Nothing is due before.
    NotYet(DateTime<Utc>),
    /// The job is superseded.
    Nothing,
}

/// Pause before ask `ask` (from 1) about an UNRESOLVED transaction.
pub fn settle_pause(ask: i32) -> TimeDelta {
    let doublings = ask.clamp(1, 10) - 1;
    (FIRST_SETTLE * (1 << doublings)).min(LONGEST_SETTLE)
}

/// Decides for the cycle's and the OTP's job.
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

/// Decides for the job of an UNRESOLVED transaction. It is asked about between cycles only: the row holds one call.
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
    // A lost ask needs no more writing: the next one is due already.
    change.header = Some(HeaderChange::Ask { cycle: header.cycle, asks, settle_at: now + settle_pause(asks) });
    change.binding.trx_id = Some(header.trx_id.clone());
    let call = change.open_call(CallAction::Settle, Some(header), rules.margin);
    ClaimDecision::Call(Box::new(CallClaim { change, call }))
}

/// A start that the provider has not confirmed is repeated while cycles run and its time is not over; else the provider is
/// only asked.
fn ask_action(binding: &Binding, rules: CallRules, now: DateTime<Utc>) -> CallAction {
    let repeats = !binding.start_confirmed
        && !binding.is_overdue(now)
        && binding.state == BindingState::Running
        && rules.repeats_are_safe;
    if repeats { CallAction::Start } else { CallAction::Status }
}

/// An OTP that came in time is sent, however late its job fires. Nothing is repeated after the transaction's time. One that
/// cannot be read is given up after a while: the provider is asked, and wants another.
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

/// The due time of a cycle that begins now. After an outage, or a wait for slots that was longer than an interval, it is now:
/// the cycles that were missed are this one.
fn find_interval_start(binding: &Binding, now: DateTime<Utc>) -> DateTime<Utc> {
    let due = binding.next_at.map_or(now, |due| due.min(now));
    if now - due < binding.config.interval_ms.least_delta() { due } else { now }
}

fn claim_call(binding: &Binding, action: CallAction, rules: CallRules, now: DateTime<Utc>) -> ClaimDecision {
    let mut change = BindingChange::new(binding, &Actor::SYSTEM, now);
    let call = change.open_call(action, None, rules.margin);
    ClaimDecision::Call(Box::new(CallClaim { change, call }))
}

/// The caller died, or gave up and could not write it. Its call is closed: the provider ends each by `Call-Until`.
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
        // What the lost call did is asked for; an OTP is not handed in again.
        if action == CallAction::Otp {
            change.count_otp();
        }
        change.binding.phase = BindingPhase::Processing;
        change.binding.next_at = Some(now);
        change.complete_stop();
        return ClaimDecision::Write(Box::new(change));
    }
    if action.is_read() && binding.call_until > binding.processing_deadline {
        // It was asked about when its time was over, and not even that has an answer. By the row alone: the configuration may
        // have changed since.
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
