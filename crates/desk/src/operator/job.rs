//! Cancels and reschedules jobs, unless the reconciler would undo it.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;

use super::{
    error::{JobRefusal, OperateError, clock_time},
    wanted::{JobAsker, find_wanted_job},
};
use crate::capability::Desk;
use foundation::{
    core::Core,
    db,
    staff_actions::{ActionAuthor, ActionValues, StaffAction, record_action},
};
use queue::{
    JobId,
    store::{CancelVerdict, JobState, RescheduleVerdict},
};

/// Maximum delay of a timer after its row's deadline. The reconciler moves a later timer back.
const TOLERANCE: TimeDelta = TimeDelta::seconds(60);

/// New due time of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RescheduleTime {
    /// After this time from now.
    In(Duration),
    /// At this time on Postgres' clock.
    At(DateTime<Utc>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RescheduledJob {
    pub due: DateTime<Utc>,
    /// Due time from the row or schedule, if it is later. A job that runs before it does nothing and waits again.
    pub not_before: Option<DateTime<Utc>>,
}

/// Removes a waiting job that neither a row nor a schedule needs.
pub async fn cancel_job(desk: &Desk, job: &JobId) -> Result<(), OperateError> {
    must_wait(&desk.core, job).await?;
    let id = || job.clone();
    let cancelled = match find_wanted_job(desk, job).await?.map(|wanted| wanted.by) {
        Some(JobAsker::Order { id: order, status }) => Err(JobRefusal::OrderAsks { job: id(), order, status }),
        Some(JobAsker::Message { subject, expires_at }) => {
            Err(JobRefusal::MessageAsks { job: id(), subject, expires_at })
        }
        Some(JobAsker::Schedule(schedule)) => Err(JobRefusal::ScheduleAsks { job: id(), schedule }),
        None => match desk.core.queue().cancel(job, &jobs::queues::ALL).await? {
            CancelVerdict::Removed => Ok(()),
            CancelVerdict::Running => Err(JobRefusal::Running(id())),
            CancelVerdict::Dead => Err(JobRefusal::Dead(id())),
            CancelVerdict::Absent => Err(JobRefusal::Absent(id())),
        },
    };
    Ok(cancelled?)
}

/// Same as [`cancel_job`], and records the action.
pub async fn cancel_recorded(desk: &Desk, job: &JobId, by: ActionAuthor<'_>) -> Result<(), OperateError> {
    // The record is written first, so that jobs are not cancelled while Postgres is unavailable.
    let mut tx = desk.core.db.begin().await?;
    let values = ActionValues::removed(json!({ "waits": true }));
    record_action(&mut tx, by, StaffAction::JobCancelled, job.as_str(), values).await?;
    cancel_job(desk, job).await?;
    Ok(tx.commit().await?)
}

/// Same as [`reschedule_job`], and records the action.
pub async fn reschedule_recorded(
    desk: &Desk,
    job: &JobId,
    when: RescheduleTime,
    by: ActionAuthor<'_>,
) -> Result<RescheduledJob, OperateError> {
    let mut tx = desk.core.db.begin().await?;
    let before = desk.core.queue().find_job(job, &jobs::queues::ALL).await?.map(|found| found.at_ms);
    let moved = reschedule_job(desk, job, when).await?;
    let values = ActionValues::changed(json!({ "due_ms": before }), json!({ "due": moved.due }));
    let subject = format!("{job} to {}", clock_time(moved.due));
    record_action(&mut tx, by, StaffAction::JobRescheduled, &subject, values).await?;
    tx.commit().await?;
    Ok(moved)
}

/// Refuses a job that is not waiting.
async fn must_wait(core: &Core, job: &JobId) -> Result<(), OperateError> {
    let found = core.queue().find_job(job, &jobs::queues::ALL).await?;
    match found.map(|found| found.state) {
        Some(JobState::Due | JobState::Suspect | JobState::Parked) => Ok(()),
        Some(JobState::Leased) => Err(JobRefusal::Running(job.clone()).into()),
        Some(JobState::Dead) => Err(JobRefusal::Dead(job.clone()).into()),
        None => Err(JobRefusal::Absent(job.clone()).into()),
    }
}

/// Changes the due time of a waiting job, unless the reconciler would move it back.
pub async fn reschedule_job(desk: &Desk, job: &JobId, when: RescheduleTime) -> Result<RescheduledJob, OperateError> {
    must_wait(&desk.core, job).await?;
    let now = db::database_now(&desk.core.db).await?;
    let id = || job.clone();
    let due = match when {
        RescheduleTime::In(delay) => {
            let due = TimeDelta::from_std(delay).ok().and_then(|delay| now.checked_add_signed(delay));
            due.ok_or(OperateError::TooLong)?
        }
        RescheduleTime::At(at) if at < now => return Err(JobRefusal::Past { job: id(), at }.into()),
        RescheduleTime::At(at) => at,
    };
    let mut not_before = None;
    if let Some(wanted) = find_wanted_job(desk, job).await? {
        // The next run of a schedule is enqueued repeatedly, and the earlier time wins.
        let (by, tolerance) = match wanted.by {
            JobAsker::Order { .. } => ("order", TOLERANCE),
            JobAsker::Message { .. } => ("message", TOLERANCE),
            JobAsker::Schedule(_) => ("schedule", TimeDelta::zero()),
        };
        let latest = wanted.due.max(now) + tolerance;
        if due > latest {
            return Err(JobRefusal::TooLate { job: id(), by, due: wanted.due, wanted: due, latest }.into());
        }
        not_before = Some(wanted.due).filter(|not_before| *not_before > due);
    }
    let delay = (due - now).to_std().unwrap_or_default();
    match desk.core.queue().reschedule(job, &jobs::queues::ALL, delay).await? {
        RescheduleVerdict::Moved => Ok(RescheduledJob { due, not_before }),
        RescheduleVerdict::Running => Err(JobRefusal::Running(id()).into()),
        RescheduleVerdict::Dead => Err(JobRefusal::Dead(id()).into()),
        RescheduleVerdict::Parked => Err(JobRefusal::Parked(id()).into()),
        RescheduleVerdict::Absent => Err(JobRefusal::Absent(id()).into()),
    }
}
