//! Consequences of a committed change to a binding: jobs, metrics and the mirror.

use std::time::Duration;

use chrono::{DateTime, Utc};
use jobs::{SendNotification, SettleTransaction};
use metrics::counter;
use model::binding::{
    Binding, BindingChange, BindingEventKind, BindingPhase, BindingState, HeaderChange, TransactionStatus, derive,
};

use super::slots::slots_for_call;
use crate::{capability::Bindings, store::transactions::EndedCallRecord};
use queue::NewJob;

/// Longest delay for which a job is enqueued with its slots. The envelope of a later job would stay in Redis for the
/// whole delay.
const STATED_WITHIN: Duration = Duration::from_secs(10);

/// Returns the jobs that a binding must have after this change, and the jobs that deliver its new messages.
///
/// `now` is Postgres' time after the commit. A job's delay counts from the time it is enqueued. With the time of the
/// decision, the job would be late by the duration of the commit.
pub fn derive_jobs(change: &BindingChange, after: &Binding, messages: &[i64], now: DateTime<Utc>) -> Vec<NewJob> {
    let own = derive(after, now).map(|timer| timer.job);
    let told = messages.iter().map(|id| {
        let subject = after.id.clone().into();
        NewJob::now(&SendNotification { subject, outbox_id: *id })
    });
    own.into_iter().chain(settle_job(change, now)).chain(told).collect()
}

/// Adds the slots of the next call to the job of the binding. A worker then receives the job together with its slots
/// and need not ask for them.
pub fn state_slots(bindings: &Bindings, after: &Binding, jobs: &mut [NewJob]) {
    if !matches!(after.phase, BindingPhase::Idle | BindingPhase::Processing) {
        return;
    }
    let Some(own) = derive(after, after.updated_at).map(|timer| timer.job.id) else { return };
    let Some(job) = jobs.iter_mut().find(|job| job.id == own && job.delay <= STATED_WITHIN) else { return };
    job.slots = slots_for_call(bindings, &after.server_id, after).ok();
}

/// Returns the job of a transaction that this change makes UNRESOLVED, or that must be queried again after this change.
fn settle_job(change: &BindingChange, now: DateTime<Utc>) -> Option<NewJob> {
    let header = change.header.as_ref()?;
    let settle_at = match header {
        HeaderChange::Move { status: TransactionStatus::Unresolved, settle_at, .. } => (*settle_at)?,
        HeaderChange::Ask { settle_at, .. } => *settle_at,
        HeaderChange::Begin(_) | HeaderChange::Move { .. } => return None,
    };
    let job = SettleTransaction { binding: change.binding.id.clone(), cycle: header.cycle().unsigned_abs() };
    Some(NewJob::after(&job, (settle_at - now).to_std().unwrap_or_default()))
}

/// Updates metrics, logs and the mirror. The log lines are in the binding's span.
pub fn announce_change(bindings: &Bindings, before: &Binding, change: &BindingChange, after: &Binding, owner: &str) {
    for event in &change.events {
        match event.kind {
            BindingEventKind::Stopped => {
                let reason = after.reason.map_or("none", |reason| reason.as_str());
                counter!("dispatchq_binding_stops_total", "reason" => reason).increment(1);
                tracing::info!(reason, actor = %change.actor, "A binding has stopped.");
            }
            BindingEventKind::Unresolved => {
                tracing::warn!("A transaction has taken too long; the worker keeps asking its provider.");
            }
            _ => {}
        }
    }
    if let Some(HeaderChange::Move { status, reason, .. }) = &change.header
        && (status.is_final() || *status == TransactionStatus::Unresolved)
    {
        counter!(
            "dispatchq_binding_transactions_total",
            "server" => before.server_id.to_string(),
            "status" => status.as_str(),
            "reason" => known_reason(reason.as_deref()),
        )
        .increment(1);
        if bindings.config.bindings.metrics_for.contains(&after.id) {
            let labels = [("binding", after.id.to_string()), ("status", status.to_string())];
            counter!("dispatchq_binding_outcomes_total", &labels).increment(1);
        }
    }
    bindings.mirror.copy_change(change, after, owner);
}

/// Returns the reason as a metric label. All reasons from providers share the label "other".
fn known_reason(reason: Option<&str>) -> &'static str {
    const KNOWN: [&str; 9] = [
        "insufficient_balance_before_start",
        "otp_timeout",
        "otp_rejected",
        "manual_stop",
        "processing_timeout",
        "unknown_at_provider",
        "rejected",
        "server_disabled",
        "server_not_allowed",
    ];
    match reason {
        None => "none",
        Some(reason) => KNOWN.into_iter().find(|known| *known == reason).unwrap_or("other"),
    }
}

/// Counts a call whose end has been written.
pub(super) fn count_call(server: &str, action: &'static str, result: &'static str, call: Option<&EndedCallRecord>) {
    counter!("dispatchq_binding_calls_total", "server" => server.to_owned(), "action" => action, "result" => result)
        .increment(1);
    if let Some(latency) = call.and_then(|call| call.record.latency) {
        metrics::histogram!("dispatchq_binding_call_seconds", "action" => action, "server" => server.to_owned())
            .record(latency.as_secs_f64());
    }
}

/// Returns whether the binding stops cycling or changes its server, so that its job must leave the server's line.
pub(super) fn leaves_line(before: &Binding, after: &Binding) -> bool {
    let ran = matches!(before.state, BindingState::Running);
    let rests = after.state != BindingState::Running || after.deleted_at.is_some();
    (ran && rests) || before.server_id != after.server_id
}

/// Returns whether cycles start again after a stop or a pause. The first cycle then has a new job.
pub(super) fn runs_again(before: &Binding, after: &Binding) -> bool {
    before.state != BindingState::Running && after.state == BindingState::Running && after.is_at_rest()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chrono::TimeDelta;
    use model::{
        actor::Actor,
        binding::{
            AnswerDecision, BindingCommand, BindingConfig, CallRules, ClaimDecision, CommandOutcome, DecisionMoment,
            ProviderAnswer, decide_answer, decide_claim, decide_command,
        },
    };

    use super::*;

    #[test]
    fn commit_time_is_subtracted_from_the_delay() {
        let now: DateTime<Utc> = "2027-01-15T08:00:00Z".parse().unwrap();
        let moment = DecisionMoment { now, luck: 0.0 };
        let (server, account) = ("S1".parse().unwrap(), "A-1".parse().unwrap());
        let mut row = Binding::new_stopped("B-7".parse().unwrap(), server, account, BindingConfig::default(), now);
        let started = decide_command(&row, &BindingCommand::Start, &Actor::SYSTEM, now);
        let CommandOutcome::Write(change) = started else { panic!("{started:?}") };
        row = row.apply(&change);
        let rules = CallRules { margin: TimeDelta::zero(), repeats_are_safe: true, otp_is_readable: true };
        let ClaimDecision::Call(claim) = decide_claim(&row, rules, moment) else { panic!("no call of {row:?}") };
        row = row.apply(&claim.change);
        let answer = ProviderAnswer::Success { provider_ref: None };
        let answered = decide_answer(&row, claim.call.call_no, &answer, moment);
        let AnswerDecision::Write(change) = answered else { panic!("{answered:?}") };
        row = row.apply(&change);

        let delay = |ms| derive_jobs(&change, &row, &[], now + TimeDelta::milliseconds(ms))[0].delay;
        assert_eq!([0, 20, 300, 900].map(delay), [300, 280, 0, 0].map(Duration::from_millis));
    }
}
