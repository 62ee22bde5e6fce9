//! The common part of all timers of an order.
//!
//! A job is a hint; the row decides. A step loads the row and then:
//!
//! * If the row does not require the job, the job is superseded. The step writes nothing and returns the jobs that must
//!   exist, which repairs a crash between commit and settle.
//! * If the lifetime is over without a driver, the order ends, whatever the job.
//! * If the row says that the job is not due, the job is snoozed.
//! * Otherwise the step decides and writes on condition that no other change was written first. It returns the jobs
//!   that the new row requires, and those that the order will never need again.

use std::time::Duration;

use jobs::OrderId;
use metrics::histogram;
use model::{
    decide::{
        Change, Decision,
        superseded::superseded_timers,
        timers::{self, OrderTimer},
    },
    fleet::decide::end_lifetime,
    order::Snapshot,
};

use crate::{
    capability::Orders,
    commit::{self, ChangeError, ChangeOutcome},
    kept::FoundOrder,
    seen::SeenOrder,
    store::write::ApplyError,
};
use foundation::{core::Core, crash, db::database_failed};
use queue::{JobId, Outcome, retry::add_jitter};

/// Maximum repetitions of a step after conflicts with other changes.
const MAX_CONFLICTS: usize = 5;
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub enum Step {
    /// Writes this change of the order as it was read.
    Write(Box<(Change, Snapshot)>),
    /// Ends the job with this outcome and writes nothing.
    Finish(Outcome),
}

impl Step {
    /// Creates a step that writes `change`, which was decided on `order`.
    pub fn write_change(change: Change, order: Snapshot) -> Self {
        Self::Write(Box::new((change, order)))
    }
}

/// Runs a step whose decision needs only the order.
pub async fn decide_sync(
    orders: &Orders,
    order: &OrderId,
    job: &JobId,
    decide: impl Fn(&Snapshot) -> Change,
) -> Outcome {
    outcome_of(&orders.core, try_decide_sync(orders, order, job, decide).await)
}

/// Runs a step like [`decide_sync`], but returns database errors to the caller.
pub async fn try_decide_sync(
    orders: &Orders,
    order: &OrderId,
    job: &JobId,
    decide: impl Fn(&Snapshot) -> Change,
) -> Result<Outcome, sqlx::Error> {
    let decide = &decide;
    try_run_step(orders, order, job, |s| async move { Step::write_change(decide(&s), s) }).await
}

/// Runs a step. `decide` is called with the order if the job is required and due.
pub async fn run_step<F>(orders: &Orders, order: &OrderId, job: &JobId, decide: impl Fn(Snapshot) -> F) -> Outcome
where
    F: Future<Output = Step>,
{
    outcome_of(&orders.core, try_run_step(orders, order, job, decide).await)
}

fn outcome_of(core: &Core, result: Result<Outcome, sqlx::Error>) -> Outcome {
    result.unwrap_or_else(|error| database_failed(&*core.rng, &error))
}

async fn try_run_step<F>(
    orders: &Orders,
    order: &OrderId,
    job: &JobId,
    decide: impl Fn(Snapshot) -> F,
) -> Result<Outcome, sqlx::Error>
where
    F: Future<Output = Step>,
{
    for attempt in 0..MAX_CONFLICTS {
        let kept = if attempt == 0 { find_kept_if_due(orders, order, job).await? } else { None };
        let (s, assumed) = match kept {
            Some(FoundOrder { snapshot, assumed }) => (snapshot, Some(assumed)),
            None => match load_if_due(orders, order, job).await? {
                DueOrder::Due(s) => (*s, None),
                DueOrder::NotDue(outcome) => return Ok(outcome),
            },
        };
        let version = s.order.version;
        // An order whose lifetime is over ends, whatever the job was to do.
        let step =
            if s.order.is_past_lifetime(s.now) { Step::write_change(end_lifetime(&s), s) } else { decide(s).await };
        let (change, s) = match step {
            Step::Write(decided) => *decided,
            // Only a write is checked against the row, so the row is read before a job ends without one.
            Step::Finish(outcome) if assumed.is_none() || is_current(orders, order, version).await? => {
                return Ok(outcome);
            }
            Step::Finish(_) => continue,
        };
        crash::reach_point(job.kind(), "decided");
        match commit::apply_change_at(orders, &s, change, assumed).await {
            Ok(after) => {
                let superseded = superseded_timers(&s, &after);
                return Ok(Outcome::Done { then: timers::derive_jobs(&after), superseded });
            }
            Err(ApplyError::Conflict) => {}
            Err(ApplyError::Refused(refusal)) => return Ok(Outcome::Retry(refusal.to_string())),
            Err(ApplyError::Database(e)) => return Err(e),
        }
    }
    Ok(retry_when_busy(&orders.core, order, job))
}

/// Returns whether the order still has this version.
async fn is_current(orders: &Orders, order: &OrderId, version: i64) -> Result<bool, sqlx::Error> {
    Ok(orders.rows.load_order(order).await?.is_some_and(|s| s.order.version == version))
}

enum DueOrder {
    /// The row requires the job and the job is due, or the lifetime is over.
    Due(Box<Snapshot>),
    /// Outcome of a job that is not required or not due.
    NotDue(Outcome),
}

/// Returns the order as this process last wrote it, if it requires this job now. Otherwise the row decides.
async fn find_kept_if_due(orders: &Orders, order: &OrderId, job: &JobId) -> Result<Option<FoundOrder>, sqlx::Error> {
    let found = commit::find_kept(orders, order, None).await?;
    Ok(found.filter(|FoundOrder { snapshot: s, .. }| {
        let timer = timers::derive_timers(s).into_iter().find(|t| t.id() == job);
        timer.is_some_and(|timer| {
            let is_due = timer.is_due(s.now);
            if is_due {
                record_lateness(&timer, s);
            }
            is_due
        })
    }))
}

fn record_lateness(timer: &OrderTimer, s: &Snapshot) {
    histogram!("dispatchq_timer_lateness_seconds").record((s.now - timer.due).as_seconds_f64());
}

async fn load_if_due(orders: &Orders, order: &OrderId, job: &JobId) -> Result<DueOrder, sqlx::Error> {
    let Some(s) = orders.rows.load_order(order).await? else {
        tracing::warn!(order.id = %order, job.id = %job, "The order of this job does not exist; the job is dropped.");
        return Ok(DueOrder::NotDue(Outcome::done()));
    };
    let Some(timer) = timers::derive_timers(&s).into_iter().find(|t| t.id() == job) else {
        return Ok(DueOrder::NotDue(Outcome::then_enqueue(timers::derive_jobs(&s))));
    };
    Ok(if s.order.is_past_lifetime(s.now) || timer.is_due(s.now) {
        if timer.is_due(s.now) {
            record_lateness(&timer, &s);
        }
        DueOrder::Due(Box::new(s))
    } else {
        DueOrder::NotDue(Outcome::Snooze { delay: timers::time_until(timer.due, s.now) })
    })
}

/// Writes a result from another server, whatever the state of the order, and returns the jobs that the order must now
/// have.
pub async fn record_result(
    orders: &Orders,
    order: &OrderId,
    job: &JobId,
    decide: impl FnMut(&Snapshot) -> Decision,
) -> Outcome {
    crash::reach_point(job.kind(), "learnt");
    outcome_of_change(&orders.core, order, job, commit::change_order(orders, order, decide).await)
}

/// Writes a result like [`record_result`], based on the snapshot that was read before the call to the other server.
pub async fn record_answer(
    orders: &Orders,
    seen: &SeenOrder,
    job: &JobId,
    decide: impl FnMut(&Snapshot) -> Decision,
) -> Outcome {
    crash::reach_point(job.kind(), "learnt");
    let order = &seen.snapshot().order.id;
    outcome_of_change(&orders.core, order, job, commit::change_seen_order(orders, seen, decide).await)
}

fn outcome_of_change(
    core: &Core,
    order: &OrderId,
    job: &JobId,
    changed: Result<ChangeOutcome, ChangeError>,
) -> Outcome {
    match changed {
        Ok(changed) => changed.into_job_outcome(),
        Err(ChangeError::NotFound) => Outcome::done(),
        Err(ChangeError::Refused(refusal)) => Outcome::Retry(refusal.to_string()),
        Err(ChangeError::Busy) => retry_when_busy(core, order, job),
        Err(ChangeError::Database(e)) => database_failed(&*core.rng, &e),
    }
}

fn retry_when_busy(core: &Core, order: &OrderId, job: &JobId) -> Outcome {
    tracing::debug!(order.id = %order, job.id = %job, "The order keeps changing; the job is delayed.");
    Outcome::Snooze { delay: add_jitter(CONFLICT_PAUSE, 0.5, core.rng.next_unit()) }
}
