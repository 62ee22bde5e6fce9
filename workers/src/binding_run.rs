//! One run of a binding's job, shared by `cycle`, `otp` and `settle`.
//!
//! A run first loads the row. If the row does not ask for this job, the job is superseded: it writes nothing and
//! returns the job that must exist. A job that is not due is snoozed. A call needs slots; without them the job is
//! parked, at no cost, until it gets them.

use std::{ops::ControlFlow, time::Duration};

use jobs::BindingId;
use metrics::histogram;
use model::{
    actor::Actor,
    binding::{
        Binding, BindingChange, BindingCommand, BindingTimer, CallAction, CallRules, ClaimDecision, CommandOutcome,
        ProviderCall, StopReason, change::DecisionMoment, decide_claim, decide_command, decide_deadline, decide_settle,
        derive,
    },
};
use tracing::Instrument;

use bindings::{
    call::{self, CallAttempt, CallEnd},
    capability::Bindings,
    follow,
    otp_seal::PlainOtp,
    owner::new_owner,
    slots::slots_for_call,
    span,
    store::{
        BatchError,
        load::LoadedBinding,
        servers::ServerStanding,
        transactions::{self, LoadedTransaction},
        write::{BindingWrite, WriteVerdict},
    },
};
use foundation::{
    core::Core,
    crash,
    db::{database_failed, database_pause, is_unreadable},
};
use queue::{Delivery, NewJob, Outcome, retry::add_jitter, run_with_slots};

/// Maximum number of times that a run starts over because of a concurrent change.
const MAX_CONFLICTS: usize = 10;
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);
/// Pause after a configuration error on this side, such as a missing API key.
const MISCONFIGURED_PAUSE: Duration = Duration::from_secs(5);
/// Pause after a row that another version wrote and this one cannot read.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(10);

/// Runs a job of a binding. `settles` is the cycle to settle if this is a `settle` job.
pub(crate) async fn run_binding(
    bindings: &Bindings,
    binding: &BindingId,
    settles: Option<u64>,
    delivery: &Delivery,
) -> Outcome {
    let run = BindingRun { bindings, binding, settles, delivery };
    finish_run(&bindings.core, run.run().await)
}

fn finish_run(core: &Core, result: Result<Outcome, BatchError>) -> Outcome {
    result.unwrap_or_else(|error| match error {
        BatchError::Database(error) if is_unreadable(&error) => {
            tracing::error!(%error, "Cannot read the row of a binding; the job waits for a version that can.");
            Outcome::Snooze { delay: add_jitter(UNREADABLE_PAUSE, 0.5, core.rng.next_unit()) }
        }
        BatchError::Database(error) => database_failed(&*core.rng, &error),
        BatchError::Lost(_) => database_pause(&*core.rng),
    })
}

struct BindingRun<'a> {
    bindings: &'a Bindings,
    binding: &'a BindingId,
    /// Cycle to settle if this is a `settle` job.
    settles: Option<u64>,
    delivery: &'a Delivery,
}

/// Data from Postgres on which a run bases its decision.
struct Situation {
    loaded: LoadedBinding,
    /// Transaction of a `settle` job.
    settled: Option<LoadedTransaction>,
    /// Stored OTP in plain text. `None` if none is stored, or if this worker cannot decrypt it.
    otp: Option<PlainOtp>,
}

impl Situation {
    /// Returns the server for the call. For a `settle` job, this is the transaction's server, even if the binding has
    /// moved to another one.
    fn server(&self) -> &ServerStanding {
        self.settled.as_ref().map_or(&self.loaded.server, |settled| &settled.server)
    }

    fn decide(&self, bindings: &Bindings, moment: DecisionMoment) -> ClaimDecision {
        let margin = chrono::TimeDelta::from_std(bindings.config.bindings.call_margin).unwrap_or_default();
        let rules =
            CallRules { margin, repeats_are_safe: self.server().repeats_are_safe, otp_is_readable: self.otp.is_some() };
        match &self.settled {
            Some(settled) => decide_settle(&self.loaded.binding, &settled.header, rules, moment.now),
            None => decide_claim(&self.loaded.binding, rules, moment),
        }
    }
}

/// Result of one pass over the row.
enum Looked {
    Finished(Outcome),
    /// A concurrent change was written first.
    Again,
}

impl BindingRun<'_> {
    async fn run(&self) -> Result<Outcome, BatchError> {
        for _ in 0..MAX_CONFLICTS {
            let Some(situation) = self.load_situation().await? else { return Ok(Outcome::done()) };
            let span = span::open_span(&situation.loaded.binding, situation.settled.as_ref().map(|s| &s.header));
            if let Looked::Finished(outcome) = self.look_once(&situation).instrument(span).await? {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Snooze { delay: add_jitter(CONFLICT_PAUSE, 0.5, self.bindings.core.rng.next_unit()) })
    }

    /// Loads the rows. Returns `None` if the binding no longer exists or if there is nothing to settle.
    async fn load_situation(&self) -> Result<Option<Situation>, BatchError> {
        let Some(loaded) = self.bindings.rows.load_binding(self.binding).await? else {
            tracing::warn!(binding_id = %self.binding, "The binding of this job does not exist; the job is dropped.");
            return Ok(None);
        };
        let otp = self.open_otp(&loaded.binding);
        let Some(cycle) = self.settles else { return Ok(Some(Situation { loaded, settled: None, otp })) };
        let cycle = i64::try_from(cycle).unwrap_or(i64::MAX);
        let settled = transactions::load_transaction(&self.bindings.core.db, self.binding, cycle).await?;
        Ok(settled.map(|settled| Situation { loaded, settled: Some(settled), otp }))
    }

    fn open_otp(&self, binding: &Binding) -> Option<PlainOtp> {
        let (trx_id, sealed) = (binding.trx_id.as_ref()?, binding.otp_value.as_ref()?);
        let opened = self.bindings.otps.open_otp(trx_id, sealed);
        opened.inspect_err(|error| tracing::error!(%trx_id, %error, "This worker cannot decrypt a stored OTP.")).ok()
    }

    async fn look_once(&self, situation: &Situation) -> Result<Looked, BatchError> {
        let (bindings, loaded) = (self.bindings, &situation.loaded);
        let moment = call::moment_of(&bindings.core, loaded);
        if situation.settled.is_none() {
            let timer = derive(&loaded.binding, moment.now);
            if timer.as_ref().map(BindingTimer::id) != Some(&self.delivery.id) {
                return Ok(finish_with(timer.map(|timer| timer.job)));
            }
            if let Some(timer) = timer.filter(|timer| timer.is_due(moment.now)) {
                let late = (moment.now - timer.due).to_std().unwrap_or_default();
                histogram!("dispatchq_binding_lateness_seconds").record(late.as_secs_f64());
            }
        }
        match situation.decide(bindings, moment) {
            ClaimDecision::Nothing => Ok(finish_with(self.own_job(situation, moment))),
            ClaimDecision::NotYet(at) => Ok(snooze_until(at, moment)),
            ClaimDecision::Write(change) => self.write_decided(loaded, *change).await,
            ClaimDecision::Call(claim) => self.prepare_call(situation, &claim.call, moment).await,
        }
    }

    /// Returns the job that the row asks for. `None` in a `settle` run.
    fn own_job(&self, situation: &Situation, moment: DecisionMoment) -> Option<NewJob> {
        let job = derive(&situation.loaded.binding, moment.now).map(|timer| timer.job);
        job.filter(|_| situation.settled.is_none())
    }

    async fn write_decided(&self, loaded: &LoadedBinding, change: BindingChange) -> Result<Looked, BatchError> {
        crash::reach_point("cycle", "decided");
        let owner = new_owner(self.bindings);
        let write = BindingWrite { change: change.clone(), owner: owner.clone(), call: None };
        match self.bindings.rows.write_binding(write).await? {
            WriteVerdict::Conflict => Ok(Looked::Again),
            WriteVerdict::Written { messages } => {
                let after = loaded.binding.apply(&change);
                span::record_change(&loaded.binding, &change, &after);
                follow::announce_change(self.bindings, &loaded.binding, &change, &after, &owner);
                let jobs = follow::derive_jobs(&change, &after, &messages, loaded.current_time());
                Ok(Looked::Finished(Outcome::then_enqueue(jobs)))
            }
        }
    }

    /// Checks whether the server may be called, then makes the call with slots.
    async fn prepare_call(
        &self,
        situation: &Situation,
        call: &ProviderCall,
        moment: DecisionMoment,
    ) -> Result<Looked, BatchError> {
        let (bindings, loaded, server) = (self.bindings, &situation.loaded, situation.server());
        let begins_cycle = call::begins_cycle(&loaded.binding, call);
        if !server.enabled && begins_cycle {
            return self.stop_binding(loaded, StopReason::ServerDisabled, moment).await;
        }
        if !bindings.providers.knows_provider(&server.provider) {
            tracing::error!(provider = %server.provider, "A provider is not configured; set [providers.{}] api_key for the workers.", server.provider);
            return self.put_off_call(situation, moment, MISCONFIGURED_PAUSE).await;
        }
        if let Err(error) = bindings.providers.check_address(&server.provider, &server.base_url) {
            tracing::error!(%error, "A provider's server has an address that the configuration does not allow; it is not called.");
            if begins_cycle {
                return self.stop_binding(loaded, StopReason::ServerNotAllowed, moment).await;
            }
            return self.put_off_call(situation, moment, MISCONFIGURED_PAUSE).await;
        }
        if let Some(until) = server.pause_end(moment.now) {
            let pause = (until - moment.now).to_std().unwrap_or_default();
            return self.put_off_call(situation, moment, pause).await;
        }
        let otp = situation.otp.as_ref().filter(|_| call.action == CallAction::Otp);
        self.call_with_slots(situation, otp).await
    }

    /// Stops the binding instead of starting its next cycle.
    async fn stop_binding(
        &self,
        loaded: &LoadedBinding,
        reason: StopReason,
        moment: DecisionMoment,
    ) -> Result<Looked, BatchError> {
        let stop = BindingCommand::Stop { reason };
        match decide_command(&loaded.binding, &stop, &Actor::SYSTEM, moment.now) {
            CommandOutcome::Write(change) => self.write_decided(loaded, *change).await,
            CommandOutcome::NoOp(_) | CommandOutcome::Conflict(_) => Ok(Looked::Finished(Outcome::done())),
        }
    }

    /// Postpones a call that cannot be made now. Ends an overdue cycle without a call.
    async fn put_off_call(
        &self,
        situation: &Situation,
        moment: DecisionMoment,
        pause: Duration,
    ) -> Result<Looked, BatchError> {
        let loaded = &situation.loaded;
        if situation.settled.is_none()
            && let Some(change) = decide_deadline(&loaded.binding, moment)
        {
            return self.write_decided(loaded, change).await;
        }
        let deadline = loaded.binding.processing_deadline.filter(|_| situation.settled.is_none());
        let left = deadline.map(|deadline| (deadline - moment.now).to_std().unwrap_or_default());
        // Spreads the waiting jobs, so that they do not all come back at once.
        let delay = add_jitter(pause + CONFLICT_PAUSE, 0.3, self.bindings.core.rng.next_unit()).max(pause);
        Ok(Looked::Finished(Outcome::Snooze { delay: left.map_or(delay, |left| delay.min(left)) }))
    }

    async fn call_with_slots(&self, situation: &Situation, otp: Option<&PlainOtp>) -> Result<Looked, BatchError> {
        let (bindings, loaded, server) = (self.bindings, &situation.loaded, situation.server());
        let need = match slots_for_call(bindings, &server.id, &loaded.binding) {
            Ok(need) => need,
            Err(error) => return Ok(Looked::Finished(Outcome::Dead(error.to_string()))),
        };
        let decide = |moment| situation.decide(bindings, moment);
        let with_slots = run_with_slots(&bindings.core.store, self.delivery, &need, |grant| async move {
            call::attempt_call(bindings, loaded, server, otp, (&self.delivery.id, &grant), decide).await
        });
        let made = match Box::pin(with_slots).await {
            ControlFlow::Break(outcome) => return Ok(Looked::Finished(outcome)),
            ControlFlow::Continue(attempt) => match attempt? {
                CallAttempt::Made(made) => made,
                CallAttempt::Conflict | CallAttempt::Overtaken => return Ok(Looked::Again),
            },
        };
        match made.record_answer(bindings, loaded, server).await? {
            CallEnd::Overtaken => Ok(Looked::Again),
            CallEnd::Recorded(recorded) => {
                let moment = call::moment_of(&bindings.core, loaded);
                let mut jobs: Vec<NewJob> = match &recorded.change {
                    Some(change) => follow::derive_jobs(change, &recorded.after, &recorded.messages, moment.now),
                    None => derive(&recorded.after, moment.now).map(|timer| timer.job).into_iter().collect(),
                };
                follow::state_slots(bindings, &recorded.after, &mut jobs);
                jobs.extend(self.settle_again(situation, &recorded.change, moment).await?);
                Ok(Looked::Finished(Outcome::then_enqueue(jobs)))
            }
        }
    }

    /// Returns the job that asks again about a transaction that is still UNRESOLVED.
    async fn settle_again(
        &self,
        situation: &Situation,
        change: &Option<BindingChange>,
        moment: DecisionMoment,
    ) -> Result<Option<NewJob>, BatchError> {
        let Some(settled) = &situation.settled else { return Ok(None) };
        if change.as_ref().is_some_and(|change| change.header.is_some()) {
            return Ok(None);
        }
        let header = &settled.header;
        let now = transactions::load_transaction(&self.bindings.core.db, self.binding, header.cycle).await?;
        Ok(now.and_then(|now| model::binding::settle_timer(&now.header, moment.now)).map(|timer| timer.job))
    }
}

fn finish_with(job: Option<NewJob>) -> Looked {
    Looked::Finished(Outcome::then_enqueue(job.into_iter().collect()))
}

fn snooze_until(at: chrono::DateTime<chrono::Utc>, moment: DecisionMoment) -> Looked {
    Looked::Finished(Outcome::Snooze { delay: (at - moment.now).to_std().unwrap_or_default() })
}
