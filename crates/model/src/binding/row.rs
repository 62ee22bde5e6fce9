//! The binding row.

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
    /// Reason for STOPPED or STOPPING; `None` for a binding that never ran.
    pub reason: Option<StopReason>,
    #[sqlx(json)]
    pub config: BindingConfig,
    /// Number of started cycles. The last one is open unless the phase is IDLE.
    pub cycle: i64,
    pub phase: BindingPhase,
    /// The open transaction, or the transaction of a `settle` call.
    pub trx_id: Option<TrxId>,
    /// Whether starts are no longer sent: the provider confirmed the start of the open transaction, or answered a call
    /// with a refusal or an unreadable text.
    pub start_confirmed: bool,
    /// Start of the current interval, for intervals that count from the start of a cycle. It is the due time of the
    /// last cycle, or its start if that was at least one interval later. `None`: no cycle has started.
    pub interval_start: Option<DateTime<Utc>>,
    /// Time of the next cycle (IDLE), or of the next call (PROCESSING, or WAITING_OTP with an OTP).
    pub next_at: Option<DateTime<Utc>>,
    pub call_no: i64,
    /// The open call, while CALLING.
    pub call_action: Option<CallAction>,
    pub call_until: Option<DateTime<Utc>>,
    /// Number of calls about the open transaction that did not end it, including lost calls. 0 during its first start.
    pub asks: i32,
    /// Number of consecutive failed transactions.
    pub failures: i32,
    /// Time at which the open transaction becomes UNRESOLVED.
    pub processing_deadline: Option<DateTime<Utc>>,
    /// End of the wait for an OTP, while none is stored.
    pub otp_deadline: Option<DateTime<Utc>>,
    /// Number of used-up OTPs.
    pub otp_tries: i32,
    /// Submitted OTP, encrypted. Erased with the result of its call.
    #[serde(skip)]
    pub otp_value: Option<Vec<u8>>,
    pub otp_submitted_at: Option<DateTime<Utc>>,
    pub unresolved: i32,
    /// Incremented by every change. A change names the version that its decision used.
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    /// Time of the deletion. The id is not reused before the last transaction of the binding is removed.
    pub deleted_at: Option<DateTime<Utc>>,
}

impl Binding {
    /// Creates a binding: STOPPED and IDLE.
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

    /// Returns whether a call is claimed and has not ended.
    pub fn has_open_call(&self) -> bool {
        self.phase == BindingPhase::Calling
    }

    pub fn is_at_rest(&self) -> bool {
        self.phase == BindingPhase::Idle
    }

    /// Returns whether the deadline of the open transaction has passed. Nothing more is started, and the provider is
    /// asked for the status once.
    pub fn is_overdue(&self, now: DateTime<Utc>) -> bool {
        self.processing_deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Returns whether the stored OTP was sent before. Its next call is then due later than the submission.
    pub fn has_tried_otp(&self) -> bool {
        self.otp_value.is_some() && self.next_at > self.otp_submitted_at
    }

    /// Returns whether no cycle is open: the binding is IDLE, or its call is about an earlier cycle.
    pub fn is_between_cycles(&self) -> bool {
        self.is_at_rest() || self.call_action == Some(CallAction::Settle)
    }

    /// Returns the cycle of the binding's next job: the open one, or the next one.
    pub fn job_cycle(&self) -> u64 {
        self.cycle.unsigned_abs() + u64::from(self.is_between_cycles())
    }
}
