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
        timers::{self, OrderTimer},
    },
    fleet::decide::end_lifetime,
    order::Snapshot,
};

use crate::{
    capability::Orders,
    change::{self, ChangeError, decided},
    seen::{Basis, SeenOrder},
};
use foundation::{core::Core, crash, db::database_failed};
use queue::{JobId, Outcome, retry::add_jitter};

/// Maximum repetitions of a step after conflicts with other changes.
const MAX_CONFLICTS: usize = 5;
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

/// Decision of a step.
#[derive(Debug)]
pub enum Step {
    /// Writes this change, which was decided on this order.
    Write(Box<(Change, Snapshot)>),
    /// Ends the job with this outcome and writes nothing.
    Finish(Outcome),
}

impl Step {
    /// Returns the decision to write this change, which was decided on this order.
    pub fn write(change: Change, before: Snapshot) -> Self {
        Self::Write(Box::new((change, before)))
    }
}

/// Runs a step whose decision needs only the order. Returns database errors to the caller.
pub async fn decide_sync(
    orders: &Orders,
    order: &OrderId,
    job: &JobId,
    decide: impl Fn(&Snapshot) -> Change,
) -> Result<Outcome, sqlx::Error> {
    let decide = &decide;
    run_until_written(orders, order, job, |s| async move { Ok(Step::write(decide(&s), s)) }).await
}

/// Runs a step. `decide` is called with the order if the job is required and due. A database error of `decide` ends the
/// step like one of its write.
pub async fn run_step<F>(orders: &Orders, order: &OrderId, job: &JobId, decide: impl Fn(Snapshot) -> F) -> Outcome
where
    F: Future<Output = Result<Step, sqlx::Error>>,
{
    outcome_of(&orders.core, run_until_written(orders, order, job, decide).await)
}

/// Returns the outcome of a job whose step failed with a database error.
pub fn outcome_of(core: &Core, result: Result<Outcome, sqlx::Error>) -> Outcome {
    result.unwrap_or_else(|error| database_failed(&*core.rng, &error))
}

async fn run_until_written<F>(
    orders: &Orders,
    order: &OrderId,
    job: &JobId,
    decide: impl Fn(Snapshot) -> F,
) -> Result<Outcome, sqlx::Error>
where
    F: Future<Output = Result<Step, sqlx::Error>>,
{
    let mut found = find_kept_if_due(orders, order, job).await?;
    // The row that another change left.
    let mut changed: Option<Snapshot> = None;
    for _ in 0..MAX_CONFLICTS {
        let seen = match found.take() {
            Some(seen) => seen,
            None => match load_if_due(orders, order, job, changed.take()).await? {
                DueOrder::Due(s) => SeenOrder::new(*s),
                DueOrder::NotDue(outcome) => return Ok(outcome),
            },
        };
        let (assumed, s) = (seen.assumed, seen.into_snapshot());
        let version = s.order.version;
        // An order whose lifetime is over ends, whatever the job was to do.
        let step = if s.order.is_past_lifetime(s.now) { Step::write(end_lifetime(&s), s) } else { decide(s).await? };
        let (change, s) = match step {
            Step::Write(decided) => *decided,
            // Only a write is checked against the row, so the row is read before a job ends without one.
            Step::Finish(outcome) if assumed.is_none() || is_current(orders, order, version).await? => {
                return Ok(outcome);
            }
            Step::Finish(_) => continue,
        };
        crash::reach_point(job.kind(), "decided");
        let basis = Basis::Seen(Box::new(SeenOrder::new(s).assuming(assumed)));
        match orders.change(order, basis, decided(change)).await {
            Ok(written) if written.is_written() => return Ok(written.into_outcome(orders).await),
            Ok(lost) => changed = Some(*lost.after),
            Err(ChangeError::NotFound | ChangeError::Busy | ChangeError::NoRoom) => {}
            Err(ChangeError::Refused(refusal)) => return Ok(Outcome::Retry(refusal.to_string())),
            Err(ChangeError::Database(e)) => return Err(e),
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
async fn find_kept_if_due(orders: &Orders, order: &OrderId, job: &JobId) -> Result<Option<SeenOrder>, sqlx::Error> {
    let found = change::find_kept(orders, order, None).await?;
    Ok(found.filter(|seen| {
        let s = seen.snapshot();
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

/// Loads the order, unless the caller has just read it.
async fn load_if_due(
    orders: &Orders,
    order: &OrderId,
    job: &JobId,
    read: Option<Snapshot>,
) -> Result<DueOrder, sqlx::Error> {
    let read = match read {
        Some(s) => Some(s),
        None => orders.rows.load_order(order).await?,
    };
    let Some(s) = read else {
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
/// have. `basis` is the snapshot that was read before the call to the other server, or the row.
pub async fn record_answer(
    orders: &Orders,
    order: &OrderId,
    basis: Basis,
    job: &JobId,
    decide: impl FnMut(&Snapshot) -> Decision,
) -> Outcome {
    crash::reach_point(job.kind(), "learnt");
    match orders.change(order, basis, decide).await {
        Ok(changed) => changed.into_outcome(orders).await,
        Err(error) => outcome_of_failure(&orders.core, order, job, error),
    }
}

/// Returns the outcome of a job whose change failed.
pub fn outcome_of_failure(core: &Core, order: &OrderId, job: &JobId, error: ChangeError) -> Outcome {
    match error {
        ChangeError::NotFound => Outcome::done(),
        ChangeError::Refused(refusal) => Outcome::Retry(refusal.to_string()),
        ChangeError::Busy | ChangeError::NoRoom => retry_when_busy(core, order, job),
        ChangeError::Database(e) => database_failed(&*core.rng, &e),
    }
}

fn retry_when_busy(core: &Core, order: &OrderId, job: &JobId) -> Outcome {
    tracing::debug!(order.id = %order, job.id = %job, "The order keeps changing; the job is delayed.");
    Outcome::Snooze { delay: add_jitter(CONFLICT_PAUSE, 0.5, core.rng.next_unit()) }
}
