//! One binding, advanced step by step.

use chrono::{DateTime, TimeDelta, Utc};
use model::{
    actor::Actor,
    binding::{
        AnswerDecision, Binding, BindingChange, BindingCommand, BindingConflict, ClaimDecision, CommandOutcome,
        DecisionMoment, FailureReason, HeaderChange, OtpSubmission, ProviderAnswer, ProviderCall, StopReason,
        TransactionStatus, TrxId, decide_answer, decide_claim, decide_command, decide_otp, derive,
    },
};

use super::world::{RULES, World};

pub(crate) const SUCCESS: ProviderAnswer = ProviderAnswer::Success { provider_ref: None };
pub(crate) const PROCESSING: ProviderAnswer = ProviderAnswer::Processing { provider_ref: None };
pub(crate) const OTP_WANTED: ProviderAnswer = ProviderAnswer::OtpWanted { provider_ref: None };

pub(crate) fn failed(reason: FailureReason) -> ProviderAnswer {
    ProviderAnswer::Failed { reason, provider_ref: None }
}

pub(crate) fn at(now: DateTime<Utc>) -> DecisionMoment {
    DecisionMoment { now, luck: 0.0 }
}

/// A binding as the store would have it, with a clock.
pub(crate) struct Bench {
    pub(crate) row: Binding,
    pub(crate) now: DateTime<Utc>,
}

impl Bench {
    pub(crate) fn running() -> Self {
        let World { row, now, .. } = World::start(false);
        let mut bench = Self { row, now };
        bench.command(&BindingCommand::Start);
        bench
    }

    pub(crate) fn advance(&mut self, ms: i64) {
        self.now += TimeDelta::milliseconds(ms);
    }

    pub(crate) fn decide(&self, command: &BindingCommand) -> CommandOutcome {
        decide_command(&self.row, command, &Actor::SYSTEM, self.now)
    }

    pub(crate) fn command(&mut self, command: &BindingCommand) {
        let CommandOutcome::Write(change) = self.decide(command) else { panic!("{:?}", self.decide(command)) };
        self.row = self.row.apply(&change);
    }

    pub(crate) fn claim(&mut self) -> ProviderCall {
        match decide_claim(&self.row, RULES, at(self.now)) {
            ClaimDecision::Call(claim) => {
                self.row = self.row.apply(&claim.change);
                claim.call
            }
            other => panic!("{other:?} of {:?}", self.row),
        }
    }

    /// Returns the final state of the header, if the answer ends the transaction.
    pub(crate) fn answer(
        &mut self,
        call: &ProviderCall,
        answer: &ProviderAnswer,
    ) -> Option<(TransactionStatus, Option<String>)> {
        let AnswerDecision::Write(change) = decide_answer(&self.row, call.call_no, answer, at(self.now)) else {
            panic!("stale")
        };
        self.row = self.row.apply(&change);
        match change.header {
            Some(HeaderChange::Move { status, reason, .. }) => Some((status, reason)),
            _ => None,
        }
    }

    /// Applies the change of a job that fires without a call.
    pub(crate) fn fire_without_call(&mut self) -> BindingChange {
        match decide_claim(&self.row, RULES, at(self.now)) {
            ClaimDecision::Write(change) => {
                self.row = self.row.apply(&change);
                *change
            }
            other => panic!("{other:?} of {:?}", self.row),
        }
    }

    pub(crate) fn call(&mut self, answer: &ProviderAnswer) -> Option<(TransactionStatus, Option<String>)> {
        let call = self.claim();
        self.answer(&call, answer)
    }

    pub(crate) fn wait_for_timer(&mut self) -> i64 {
        let due = derive(&self.row, self.now).unwrap().due;
        let waited = (due - self.now).num_milliseconds();
        self.now = self.now.max(due);
        waited
    }

    /// Submits an OTP for the open transaction, and expects that it is stored.
    pub(crate) fn take_otp(&mut self) {
        let trx_id = TrxId::new(&self.row.id, self.row.cycle);
        let CommandOutcome::Write(change) = self.submit(&trx_id) else { panic!("refused: {:?}", self.row) };
        self.row = self.row.apply(&change);
    }

    pub(crate) fn submit(&self, trx: &TrxId) -> CommandOutcome {
        let otp = OtpSubmission { trx_id: trx.clone(), sealed: b"sealed".to_vec(), digest: "d".to_owned() };
        decide_otp(&self.row, &otp, &Actor::SYSTEM, self.now)
    }
}

pub(crate) fn conflict(outcome: CommandOutcome) -> BindingConflict {
    match outcome {
        CommandOutcome::Conflict(conflict) => conflict,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn stop() -> BindingCommand {
    BindingCommand::Stop { reason: StopReason::ManualStop }
}
