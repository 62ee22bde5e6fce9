//! The result of a decision on a binding, as a value, and its effect on the row.
//!
//! The store writes a [`BindingChange`] in one transaction, on the condition that the row still has the version that
//! the decision used. The store and the tests use the same [`Binding::apply`].

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use super::{
    Binding, BindingPhase, BindingState, CallAction, CallEnding, CallOpening, HeaderChange, IntervalFrom, ProviderCall,
    StopReason, TransactionHeader, TransactionStatus, TrxId,
};
use crate::actor::Actor;

/// Time and random number of a decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DecisionMoment {
    /// Postgres time, read with the row or known from the last read.
    pub now: DateTime<Utc>,
    /// Random number in 0..1. Spreads intervals and cool-downs.
    pub luck: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum BindingEventKind {
    Started,
    Paused,
    Resumed,
    /// Stopped while a call was open.
    Stopping,
    Stopped,
    Patched,
    Deleted,
    /// The provider requests an OTP. People are notified.
    OtpWanted,
    /// The detail is the keyed digest of the OTP.
    OtpSubmitted,
    /// A transaction became UNRESOLVED. A desk is notified.
    Unresolved,
}

impl BindingEventKind {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Notification to people about a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindingNotice {
    /// The provider requests an OTP for the open transaction.
    OtpWanted {
        trx_id: TrxId,
        /// Number of the request, from 1. Above 1: the previous OTP is used up.
        ask: i32,
        /// Time until which an OTP is accepted.
        deadline: DateTime<Utc>,
    },
    /// The transaction was not final in time. Its provider is still asked.
    Unresolved {
        trx_id: TrxId,
        /// Time by which the transaction should have been final.
        deadline: DateTime<Utc>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct BindingEvent {
    pub kind: BindingEventKind,
    pub reason: Option<StopReason>,
    pub detail: Option<String>,
    /// Reason from the person, if the detail contains something else.
    pub given_reason: Option<String>,
    /// Old and new values of the fields that a request changed.
    pub values: Option<Box<ChangedValues>>,
}

/// Values that a request changed in a binding. They never include an OTP.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedValues {
    pub old: Value,
    pub new: Value,
}

impl ChangedValues {
    /// Returns the state before and after, and the other fields that differ.
    fn between(before: &Binding, after: &Binding) -> Self {
        let [mut old, mut new] = [before, after].map(|row| {
            json!({
                "state": row.state, "server_id": row.server_id, "config": row.config,
                "otp_stored": row.otp_value.is_some(), "deleted": row.deleted_at.is_some(),
            })
        });
        if let (Value::Object(old), Value::Object(new)) = (&mut old, &mut new) {
            old.retain(|name, value| {
                let differs = new.get(name) != Some(value);
                if !differs && name != "state" {
                    new.remove(name);
                }
                differs || name == "state"
            });
        }
        Self { old, new }
    }
}

/// Everything that one transaction writes.
#[derive(Debug, Clone, PartialEq)]
pub struct BindingChange {
    pub actor: Actor,
    pub at: DateTime<Utc>,
    /// Version of the row that the decision used.
    pub version: i64,
    /// The row after the change, except version and `updated_at`.
    pub binding: Binding,
    pub header: Option<HeaderChange>,
    /// The end of the open call's record.
    pub ending: Option<CallEnding>,
    /// The record of the claimed call.
    pub opening: Option<CallOpening>,
    pub events: Vec<BindingEvent>,
    pub notices: Vec<BindingNotice>,
    /// The UNRESOLVED transaction that this change makes final. Its alert is acknowledged.
    pub settled: Option<TrxId>,
}

impl Binding {
    /// Returns the row after this change.
    #[must_use]
    pub fn apply(&self, change: &BindingChange) -> Self {
        debug_assert_eq!((self.version, &self.id), (change.version, &change.binding.id));
        Self { version: change.version + 1, updated_at: change.at, ..change.binding.clone() }
    }
}

impl BindingChange {
    pub(super) fn new(binding: &Binding, actor: &Actor, at: DateTime<Utc>) -> Self {
        Self {
            actor: actor.clone(),
            at,
            version: binding.version,
            binding: binding.clone(),
            header: None,
            ending: None,
            opening: None,
            events: Vec::new(),
            notices: Vec::new(),
            settled: None,
        }
    }

    /// Adds the values that the request changed to each event.
    pub fn record_values(&mut self, before: &Binding) {
        let values = ChangedValues::between(before, &self.binding);
        for event in &mut self.events {
            event.values = Some(Box::new(values.clone()));
        }
    }

    pub(super) fn record_event(&mut self, kind: BindingEventKind, detail: Option<String>) {
        let reason = matches!(kind, BindingEventKind::Stopping | BindingEventKind::Stopped)
            .then_some(self.binding.reason)
            .flatten();
        self.events.push(BindingEvent { kind, reason, detail, given_reason: None, values: None });
    }

    /// Ends the record of the open call. The caller sets the next phase.
    pub(super) fn end_call(&mut self, result: &'static str) {
        let cycle = self.called_cycle();
        self.ending = Some(CallEnding { cycle, call_no: self.binding.call_no, result, ended_at: self.at });
        (self.binding.call_action, self.binding.call_until) = (None, None);
    }

    pub(super) fn called_cycle(&self) -> i64 {
        self.binding.trx_id.as_ref().and_then(TrxId::parts).map_or(self.binding.cycle, |(_, cycle)| cycle)
    }

    /// Claims a call for the transaction in `trx_id`. `about` supplies server and account if they differ from the
    /// binding's.
    pub(super) fn open_call(
        &mut self,
        action: CallAction,
        about: Option<&TransactionHeader>,
        margin: TimeDelta,
    ) -> ProviderCall {
        let cycle = self.called_cycle();
        let row = &mut self.binding;
        let trx_id = row.trx_id.clone().unwrap_or_else(|| TrxId::new(&row.id, cycle));
        let call_until = self.at + row.config.call_timeout() + margin;
        let fence = self.version + 1;
        if action != CallAction::Settle {
            row.next_at = None;
        }
        row.phase = BindingPhase::Calling;
        row.call_no += 1;
        (row.call_action, row.call_until) = (Some(action), Some(call_until));
        let (server, account) =
            about.map_or((&row.server_id, &row.account_id), |header| (&header.server_id, &header.account_id));
        self.opening = Some(CallOpening {
            trx_id: trx_id.clone(),
            cycle,
            call_no: row.call_no,
            action,
            fence,
            claimed_at: self.at,
            call_until,
        });
        ProviderCall {
            binding_id: row.id.clone(),
            server_id: server.clone(),
            account_id: account.clone(),
            trx_id,
            cycle,
            call_no: row.call_no,
            action,
            fence,
            call_until,
            key: idempotency_key(row, cycle, action),
            otp_value: (action == CallAction::Otp).then(|| row.otp_value.clone()).flatten(),
        }
    }

    pub(super) fn move_header(
        &mut self,
        status: TransactionStatus,
        reason: Option<String>,
        provider_ref: Option<String>,
        settle_at: Option<DateTime<Utc>>,
    ) {
        let cycle = self.called_cycle();
        self.header = Some(HeaderChange::Move { cycle, status, reason, provider_ref, settle_at });
    }

    /// Leaves the open transaction. The binding becomes IDLE, and the stored OTP is erased.
    pub(super) fn rest_row(&mut self) {
        self.erase_otp();
        let row = &mut self.binding;
        row.phase = BindingPhase::Idle;
        (row.trx_id, row.start_confirmed) = (None, false);
        (row.asks, row.otp_tries) = (0, 0);
        (row.processing_deadline, row.otp_deadline, row.next_at) = (None, None, None);
    }

    pub(super) fn erase_otp(&mut self) {
        (self.binding.otp_value, self.binding.otp_submitted_at) = (None, None);
    }

    /// Ends the open transaction.
    pub(super) fn finish_cycle(
        &mut self,
        status: TransactionStatus,
        reason: Option<String>,
        provider_ref: Option<String>,
    ) {
        debug_assert!(status.is_final());
        self.move_header(status, reason, provider_ref, None);
        self.rest_row();
    }

    /// Fails the open transaction. The next cycle starts after the cool-down, unless too many transactions failed.
    pub(super) fn fail_cycle(&mut self, reason: &str, provider_ref: Option<String>, moment: DecisionMoment) {
        self.finish_cycle(TransactionStatus::Gagal, Some(reason.to_owned()), provider_ref);
        self.binding.failures = self.binding.failures.saturating_add(1);
        if self.binding.failures.unsigned_abs() >= self.binding.config.max_failures {
            self.stop_for(StopReason::TooManyFailures);
        }
        self.begin_next_after_cooldown(moment);
    }

    /// Schedules the next cycle after the interval, counted as the binding's settings require.
    pub(super) fn begin_next_after_interval(&mut self, moment: DecisionMoment) {
        let row = &self.binding;
        let from = match row.config.interval_from {
            IntervalFrom::End => None,
            IntervalFrom::Begin => row.interval_start,
        };
        let next_at = from.unwrap_or(self.at) + row.config.interval_ms.draw_delta(moment.luck);
        self.begin_next_at(next_at.max(self.at));
    }

    /// Schedules the next cycle after the cool-down, counted from now.
    pub(super) fn begin_next_after_cooldown(&mut self, moment: DecisionMoment) {
        self.begin_next_at(self.at + self.binding.config.cooldown_on_error_ms.draw_delta(moment.luck));
    }

    fn begin_next_at(&mut self, next_at: DateTime<Utc>) {
        let goes_on = matches!(self.binding.state, BindingState::Running | BindingState::Paused);
        self.binding.next_at = goes_on.then_some(next_at);
    }

    /// Stops a running or paused binding. A binding that is already stopped keeps its reason.
    pub(super) fn stop_for(&mut self, reason: StopReason) {
        if matches!(self.binding.state, BindingState::Running | BindingState::Paused) {
            self.force_stop(reason);
        }
    }

    /// Stops the binding with exactly this reason.
    pub(super) fn force_stop(&mut self, reason: StopReason) {
        (self.binding.state, self.binding.reason) = (BindingState::Stopped, Some(reason));
        if self.binding.is_at_rest() {
            self.binding.next_at = None;
        }
        self.record_event(BindingEventKind::Stopped, None);
    }

    /// Completes a stop that waited for the open call.
    pub(super) fn complete_stop(&mut self) {
        if self.binding.state == BindingState::Stopping {
            self.force_stop(self.binding.reason.unwrap_or(StopReason::ManualStop));
        }
    }
}

/// Returns the Idempotency-Key of a call: `B:cycle`, or `B:cycle:otp:k` for the k-th OTP. `None`: the call is a read.
fn idempotency_key(binding: &Binding, cycle: i64, action: CallAction) -> Option<String> {
    match action {
        CallAction::Start => Some(format!("{}:{cycle}", binding.id)),
        CallAction::Otp => Some(format!("{}:{cycle}:otp:{}", binding.id, binding.otp_tries + 1)),
        CallAction::Status | CallAction::Settle => None,
    }
}
