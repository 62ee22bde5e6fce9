//! Checks that every order and binding has its timers, and that every dead job has a reason.

use std::time::Duration;

use super::InvariantViolation;
use crate::recovery::{reconciler::MENDED_WITHIN, repair};
use foundation::{core::Core, error::ServiceError};
use queue::{NewJob, store::JobState};

/// Pause before the second check. A timer may be missing between a commit and its settlement. A timer that is missing
/// for longer is lost.
const SECOND_LOOK: Duration = Duration::from_secs(2);
const PAGE: usize = 1000;

pub(super) async fn check_timers(core: &Core) -> Result<Vec<InvariantViolation>, ServiceError> {
    let mut violations = Vec::new();
    violations.extend(list_lost(core).await?.into_iter().map(|job| InvariantViolation {
        invariant: "no_timer_missing",
        subject: job.id.to_string(),
        detail: format!("is not in {}", job.queue),
    }));
    for queue in jobs::queues::ALL {
        let mut offset = 0;
        loop {
            let page = core.queue().list_jobs(queue, JobState::Dead, offset, PAGE).await?;
            offset += page.len();
            let done = page.len() < PAGE;
            let silent = page.into_iter().filter(|job| job.error.as_deref().unwrap_or_default().is_empty());
            violations.extend(silent.map(|job| InvariantViolation {
                invariant: "no_dead_job_without_reason",
                subject: job.id,
                detail: format!("is dead in {queue} without a stored reason"),
            }));
            if done {
                break;
            }
        }
    }
    Ok(violations)
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
