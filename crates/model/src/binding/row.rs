//! The row of a binding.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{AccountId, BindingConfig, BindingPhase, BindingState, CallAction, ServerId, StopReason, TrxId};
use jobs::BindingId;

/// A row of `bindings`. Times are Postgres time in whole milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, sqlx::FromRow)]
pub struct Binding {
    #[sqlx(try_from = "String")]
    pub id: BindingId,
    pub server_id: ServerId,
    pub account_id: AccountId,
    pub state: BindingState,
    /// Why it is STOPPED or STOPPING; `None` for one that never ran.
    pub reason: Option<StopReason>,
    #[sqlx(json)]
    pub config: BindingConfig,
    /// Cycles begun so far; the open one unless IDLE.
    pub cycle: i64,
    pub phase: BindingPhase,
    /// The open transaction, or the one a `settle` call is about.
    pub trx_id: Option<TrxId>,
    /// No start is sent any more: the provider has said that the open transaction began, or will take no start of it.
    pub start_confirmed: bool,
    /// From when the interval of the cycle that began last counts where it counts from the begin: when that cycle was due, or
    /// when it began, if that was an interval later or more. `None`: no cycle has begun.
    pub interval_start: Option<DateTime<Utc>>,
    /// When the next cycle begins (IDLE), or the provider is called again (PROCESSING, or WAITING_OTP with an OTP).
    pub next_at: Option<DateTime<Utc>>,
    /// Calls claimed so far.
    pub call_no: i64,
    /// The open call, while CALLING.
    pub call_action: Option<CallAction>,
    pub call_until: Option<DateTime<Utc>>,
    /// Calls about the open transaction that did not end it, lost ones too: 0 while its first start is open.
    pub asks: i32,
    /// Failed transactions in a row.
    pub failures: i32,
    /// When the open transaction becomes UNRESOLVED.
    pub processing_deadline: Option<DateTime<Utc>>,
    /// When the wait for an OTP ends, while none is stored.
    pub otp_deadline: Option<DateTime<Utc>>,
    /// OTPs that are used up.
    pub otp_tries: i32,
    /// An OTP that was handed in, encrypted; erased with the outcome of its call.
    #[serde(skip)]
    pub otp_value: Option<Vec<u8>>,
    pub otp_submitted_at: Option<DateTime<Utc>>,
    /// Transactions that are UNRESOLVED.
    pub unresolved: i32,
    /// Raised by every change; a change names the version it was decided on.
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    /// Its id is not given again before its last transaction was removed.
    pub deleted_at: Option<DateTime<Utc>>,
}

impl Binding {
    /// A binding as it is created: STOPPED, at rest.
    pub fn new_stopped(
        id: BindingId,
        server_id: ServerId,
        account_id: AccountId,
        config: BindingConfig,
        now: DateTime<Utc>,
    ) -> Self {
        Self {
            id,
            server_id,
            account_id,
            state: BindingState::Stopped,
            reason: None,
            config,
            cycle: 0,
            phase: BindingPhase::Idle,
            trx_id: None,
            start_confirmed: false,
            interval_start: None,
            next_at: None,
            call_no: 0,
            call_action: None,
            call_until: None,
            asks: 0,
            failures: 0,
            processing_deadline: None,
            otp_deadline: None,
            otp_tries: 0,
            otp_value: None,
            otp_submitted_at: None,
            unresolved: 0,
            version: 0,
            created_at: now,
            updated_at: now,
            deleted_at: None,
        }
    }

    /// Returns whether a call is claimed and not ended.
    pub fn has_open_call(&self) -> bool {
        self.phase == BindingPhase::Calling
    }

    /// Returns whether no transaction is open.
    pub fn is_at_rest(&self) -> bool {
        self.phase == BindingPhase::Idle
    }

    /// Returns whether the open transaction's time is over: nothing more is started, it is asked about once.
    pub fn is_overdue(&self, now: DateTime<Utc>) -> bool {
        self.processing_deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Returns whether the stored OTP was sent before: its next call is due later than it was handed in.
    pub fn has_tried_otp(&self) -> bool {
        self.otp_value.is_some() && self.next_at > self.otp_submitted_at
    }

    /// Returns whether its last cycle is over: it rests, or is asked about an earlier one.
    pub fn is_between_cycles(&self) -> bool {
        self.is_at_rest() || self.call_action == Some(CallAction::Settle)
    }

    /// The cycle its next job is about: the open one, or the one to come.
    pub fn job_cycle(&self) -> u64 {
        self.cycle.unsigned_abs() + u64::from(self.is_between_cycles())
    }
}
