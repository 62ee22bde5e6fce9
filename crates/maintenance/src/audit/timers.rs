//! Checks that every order and binding has its timers, and that every dead job has a reason.

use std::time::Duration;

use super::InvariantViolation;
use crate::recovery::{reconciler::MENDED_WITHIN, repair};
use foundation::{core::Core, error::ServiceError};
use queue::{
    NewJob,
    store::{JobEntry, JobState},
};

/// Pause before the second check. A timer may be missing between a commit and its settlement. A timer that is missing
/// for longer is lost.
const SECOND_LOOK: Duration = Duration::from_secs(2);
const PAGE: usize = 1000;
pub(crate) const MISSING: &str = "no_timer_missing";
pub(crate) const NO_REASON: &str = "no_dead_job_without_reason";

pub(super) async fn check_timers(core: &Core) -> Result<Vec<InvariantViolation>, ServiceError> {
    let mut violations = Vec::new();
    violations.extend(list_lost(core).await?.into_iter().map(name_missing));
    for queue in jobs::queues::ALL {
        let mut offset = 0;
        loop {
            let page = core.queue().list_jobs(queue, JobState::Dead, offset, PAGE).await?;
            offset += page.len();
            let done = page.len() < PAGE;
            violations.extend(page.into_iter().filter_map(|job| name_silent(queue, job)));
            if done {
                break;
            }
        }
    }
    Ok(violations)
}

fn name_missing(job: NewJob) -> InvariantViolation {
    let detail = format!("is not in {}", job.queue);
    InvariantViolation { invariant: MISSING, subject: job.id.to_string(), detail }
}

/// Returns the violation of a dead job without a stored reason.
pub(crate) fn name_silent(queue: &str, job: JobEntry) -> Option<InvariantViolation> {
    let detail = format!("is dead in {queue} without a stored reason");
    let is_silent = job.error.as_deref().unwrap_or_default().is_empty();
    is_silent.then_some(InvariantViolation { invariant: NO_REASON, subject: job.id, detail })
}

/// Returns the timers that are missing in Redis in each of several checks.
///
/// Jobs of bindings are checked a third time. A command that did not reach Redis is only in the row until the
/// reconciler restores its job. A binding whose job is still missing after that is stuck.
async fn list_lost(core: &Core) -> Result<Vec<NewJob>, ServiceError> {
    let mut missing = repair::list_missing(core).await?;
    if !missing.is_empty() {
        tokio::time::sleep(SECOND_LOOK).await;
        let still = repair::list_missing(core).await?;
        missing.retain(|job| is_among(&still, job));
    }
    if missing.iter().any(is_of_binding) {
        tokio::time::sleep(MENDED_WITHIN).await;
        let still = repair::list_missing(core).await?;
        missing.retain(|job| !is_of_binding(job) || is_among(&still, job));
    }
    Ok(missing)
}

fn is_among(jobs: &[NewJob], job: &NewJob) -> bool {
    jobs.iter().any(|other| other.id == job.id)
}

fn is_of_binding(job: &NewJob) -> bool {
    job.queue == jobs::queues::BINDING
}
