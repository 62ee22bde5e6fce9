//! The jobs of a binding, derived from its row: the job that it must have, and the job that makes its open call.
//!
//! A job is only a hint; the row decides. Handlers, the reconciler and the checker all use these functions. A job with
//! a different id is superseded and does nothing.

use std::time::Duration;

use chrono::{DateTime, Utc};
use job_contract::{Job, JobId, NewJob};
use jobs::{RunCycle, SettleTransaction, SubmitOtp};

use super::{Binding, BindingPhase, BindingState, CallAction, TransactionHeader, TransactionStatus, TrxId};

/// A job that must exist, and the due time in its row.
#[derive(Debug, Clone, PartialEq)]
pub struct BindingTimer {
    pub job: NewJob,
    pub due: DateTime<Utc>,
}

impl BindingTimer {
    pub fn id(&self) -> &JobId {
        &self.job.id
    }

    pub fn is_due(&self, now: DateTime<Utc>) -> bool {
        self.due <= now
    }
}

fn time_until(due: DateTime<Utc>, now: DateTime<Utc>) -> Duration {
    (due - now).to_std().unwrap_or_default()
}

/// Returns the binding's job. It is `cycle:B:n` while a call or a transaction is open or a next cycle is scheduled, and
/// `otp:B:n` during WAITING_OTP. A binding that is IDLE and STOPPED or PAUSED has none.
pub fn derive(row: &Binding, now: DateTime<Utc>) -> Option<BindingTimer> {
    if row.deleted_at.is_some() {
        return None;
    }
    let due = match row.phase {
        BindingPhase::Idle if row.state != BindingState::Running => return None,
        BindingPhase::Idle | BindingPhase::Processing => row.next_at,
        BindingPhase::Calling => row.call_until,
        BindingPhase::WaitingOtp if row.otp_value.is_some() => row.next_at,
        BindingPhase::WaitingOtp => row.otp_deadline,
    };
    let due = due.unwrap_or(now);
    let (binding, cycle, delay) = (row.id.clone(), row.job_cycle(), time_until(due, now));
    let job = match row.phase {
        BindingPhase::WaitingOtp => NewJob::after(&SubmitOtp { binding, cycle }, delay),
        _ => NewJob::after(&RunCycle { binding, cycle }, delay),
    };
    Some(BindingTimer { job, due })
}

/// Returns the job that makes the open call and holds its slots; `None` if no call is open.
///
/// `otp:B:n` submits an OTP. If that call was lost (`follows_loss`), `cycle:B:n` repeats it. `settle:B:n` asks about an
/// UNRESOLVED transaction of cycle n.
pub fn calling_job(row: &Binding, follows_loss: bool) -> Option<JobId> {
    let action = row.call_action?;
    let named = row.trx_id.as_ref().and_then(TrxId::parts);
    let (binding, cycle) = named.unwrap_or_else(|| (row.id.clone(), row.cycle));
    let cycle = cycle.unsigned_abs();
    Some(match action {
        CallAction::Settle => SettleTransaction { binding, cycle }.id(),
        CallAction::Otp if !follows_loss => SubmitOtp { binding, cycle }.id(),
        CallAction::Start | CallAction::Status | CallAction::Otp => RunCycle { binding, cycle }.id(),
    })
}

/// Returns the job `settle:B:n` of an UNRESOLVED transaction.
pub fn settle_timer(header: &TransactionHeader, now: DateTime<Utc>) -> Option<BindingTimer> {
    if header.status != TransactionStatus::Unresolved {
        return None;
    }
    let due = header.settle_at.unwrap_or(now);
    let job = SettleTransaction { binding: header.binding_id.clone(), cycle: header.cycle.unsigned_abs() };
    Some(BindingTimer { job: NewJob::after(&job, time_until(due, now)), due })
}
