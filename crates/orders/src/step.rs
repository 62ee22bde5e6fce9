//! What every timer of an order has in common.
//!
//! A job is a hint, the row decides. Load the row; the job is not among those the row asks for: it is superseded, write
//! nothing and return the jobs that must exist (which heals a crash between commit and settle). Past the lifetime
//! without a driver: whatever the job, the order ends. Not due by the row: snooze. Otherwise decide, write on condition
//! that no other change was quicker, and return the jobs of the row as it now is, with those that it will never ask for again.

use std::time::Duration;

use jobs::OrderId;
use metrics::histogram;
use model::{
    decide::{Change, Decision, superseded::superseded_timers, timers},
    fleet::decide::end_lifetime,
    order::Snapshot,
};

use crate::{
    capability::Orders,
    commit::{self, ChangeError, ChangeOutcome},
    seen::SeenOrder,
    store::write::ApplyError,
};
use foundation::{core::Core, crash, db::database_failed};
use queue::{JobId, Outcome, retry::add_jitter};

/// Times a step starts over because another change was quicker.
const MAX_CONFLICTS: usize = 5;
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

/// What a step comes to.
#[derive(Debug)]
pub enum Step {
    /// This change of the order as it was read.
    Write(Box<(Change, Snapshot)>),
    /// Nothing of the order is written here: the job ends like this.
    Finish(Outcome),
}

impl Step {
    /// `order` as it was read, and decided on.
    pub fn write_change(change: Change, order: Snapshot) -> Self {
        Self::Write(Box::new((change, order)))
    }
}

/// A step decided by the order alone.
pub async fn decide_sync(
    orders: &Orders,
    order: &OrderId,
    job: &JobId,
    decide: impl Fn(&Snapshot) -> Change,
) -> Outcome {
    outcome_of(&orders.core, try_decide_sync(orders, order, job, decide).await)
}

/// As [`decide_sync`], for a step that has more to do when the database fails.
pub async fn try_decide_sync(
    orders: &Orders,
    order: &OrderId,
    job: &JobId,
    decide: impl Fn(&Snapshot) -> Change,
) -> Result<Outcome, sqlx::Error> {
    let decide = &decide;
    try_run_step(orders, order, job, |s| async move { Step::write_change(decide(&s), s) }).await
}

/// Runs a step: what `decide` makes of an order whose job this is, and due.
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
    for _ in 0..MAX_CONFLICTS {
        let s = match load_if_due(orders, order, job).await? {
            DueOrder::Due(s) => *s,
            DueOrder::NotDue(outcome) => return Ok(outcome),
        };
        // Whatever the job was to do: an order whose time is over ends.
        let step =
            if s.order.is_past_lifetime(s.now) { Step::write_change(end_lifetime(&s), s) } else { decide(s).await };
        let (change, s) = match step {
            Step::Write(decided) => *decided,
            Step::Finish(outcome) => return Ok(outcome),
        };
        crash::reach_point(job.kind(), "decided");
        match commit::apply_change(orders, &s, change).await {
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

/// The order of a job.
enum DueOrder {
    /// Its row asks for the job, which is due; or its lifetime is over.
    Due(Box<Snapshot>),
    /// What becomes of the job instead.
    NotDue(Outcome),
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
            histogram!("dispatchq_timer_lateness_seconds").record((s.now - timer.due).as_seconds_f64());
        }
        DueOrder::Due(Box::new(s))
    } else {
        DueOrder::NotDue(Outcome::Snooze { delay: timers::time_until(timer.due, s.now) })
    })
}

/// Writes what was learnt meanwhile, whatever the order has become, and returns the jobs it must now have.
pub async fn record_result(
    orders: &Orders,
    order: &OrderId,
    job: &JobId,
    decide: impl FnMut(&Snapshot) -> Decision,
) -> Outcome {
    crash::reach_point(job.kind(), "learnt");
    outcome_of_change(&orders.core, order, job, commit::change_order(orders, order, decide).await)
}

/// As [`record_result`], where the order was read before another server was asked.
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
    tracing::debug!(order.id = %order, job.id = %job, "The order keeps changing; the job waits a moment.");
    Outcome::Snooze { delay: add_jitter(CONFLICT_PAUSE, 0.5, core.rng.next_unit()) }
}
