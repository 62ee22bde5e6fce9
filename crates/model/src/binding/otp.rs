//! Decisions on an OTP that a person submits.

use chrono::{DateTime, Utc};

use super::{
    Binding, BindingChange, BindingConflict, BindingEventKind, BindingPhase, CallAction, CommandOutcome, TrxId,
    commands::refuse_for,
};
use crate::actor::Actor;

/// A submitted OTP. It never contains the plain text.
#[derive(Debug, Clone, PartialEq)]
pub struct OtpSubmission {
    pub trx_id: TrxId,
    /// Encrypted under the configured key.
    pub sealed: Vec<u8>,
    /// Keyed digest, for the history.
    pub digest: String,
}

/// Stores an OTP once. Its call is due immediately, and the wait for the OTP ends.
pub fn decide_otp(binding: &Binding, otp: &OtpSubmission, actor: &Actor, now: DateTime<Utc>) -> CommandOutcome {
    let cycle = match otp.trx_id.parts() {
        Some((id, cycle)) if id == binding.id && (1..=binding.cycle).contains(&cycle) => cycle,
        _ => return refuse_for(BindingConflict::ForeignTransaction(otp.trx_id.clone())),
    };
    let is_open = binding.deleted_at.is_none() && binding.trx_id.as_ref() == Some(&otp.trx_id);
    if !is_open || cycle != binding.cycle || binding.call_action == Some(CallAction::Settle) {
        return refuse_for(BindingConflict::OtpOver);
    }
    if binding.otp_value.is_some() {
        return refuse_for(BindingConflict::OtpStored);
    }
    if binding.phase != BindingPhase::WaitingOtp {
        return refuse_for(BindingConflict::OtpNotWanted(binding.phase));
    }
    if binding.otp_deadline.is_none_or(|deadline| deadline <= now) {
        return refuse_for(BindingConflict::OtpOver);
    }
    let mut change = BindingChange::new(binding, actor, now);
    let row = &mut change.binding;
    (row.otp_value, row.otp_submitted_at) = (Some(otp.sealed.clone()), Some(now));
    (row.otp_deadline, row.next_at) = (None, Some(now));
    row.processing_deadline = Some(now + row.config.processing_timeout());
    change.record_event(BindingEventKind::OtpSubmitted, Some(otp.digest.clone()));
    CommandOutcome::Write(Box::new(change))
}
