//! Cancelling and rescheduling a job, unless that would be undone.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use jobs::OrderId;
use model::{messages::MessageSubject, order::OrderStatus};
use serde_json::json;
use workers::{
    JobId, StoreError,
    store::{CancelVerdict, JobState, RescheduleVerdict},
};

use super::wanted::{JobAsker, find_wanted_job};
use crate::{
    accounts::staff_actions::{ActionAuthor, ActionValues, StaffAction, record_action},
    app::App,
    config::TaskScheduleError,
    db,
};

/// A timer that lies farther behind its row's deadline is moved back by the reconciler.
const TOLERANCE: TimeDelta = TimeDelta::seconds(60);

/// Why a job was left as it is. The text says what to do instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobRefusal {
    #[error("{0} is running now: wait for its end; see: dispatchq job show {0}")]
    Running(JobId),
    #[error("{0} is dead; see: dispatchq dead show {0}")]
    Dead(JobId),
    #[error("{0} waits in line for slots and runs as soon as it has them; see: dispatchq job show {0}")]
    Parked(JobId),
    #[error("no job {0}: it was never enqueued or has finished; see: dispatchq job list QUEUE")]
    Absent(JobId),
    #[error(
        "{order} is {status} and asks for {job}: cancelled, it would be put back; end the order instead: dispatchq \
         order cancel {order}"
    )]
    OrderAsks { job: JobId, order: OrderId, status: OrderStatus },
    #[error(
        "{job} delivers a message of {subject}: cancelled, it would be put back; it ends with its delivery, or at {at}",
        at = clock_time(*.expires_at)
    )]
    MessageAsks { job: JobId, subject: MessageSubject, expires_at: DateTime<Utc> },
    #[error(
        "{job} is the next run of the schedule '{schedule}': cancelled, it would be put back; take the schedule out of \
         [schedules] in config.toml instead"
    )]
    ScheduleAsks { job: JobId, schedule: &'static str },
    #[error(
        "{job} is to run at {due} by its {by}: the reconciler would move it back from {wanted}; choose a time up to \
         {latest}",
        due = clock_time(*.due), wanted = clock_time(*.wanted), latest = clock_time(*.latest)
    )]
    TooLate { job: JobId, by: &'static str, due: DateTime<Utc>, wanted: DateTime<Utc>, latest: DateTime<Utc> },
    #[error("{at} has passed; run it now: dispatchq job run-now {job}", at = clock_time(*.at))]
    Past { job: JobId, at: DateTime<Utc> },
}

impl JobRefusal {
    /// The word programs match on.
    pub fn error_code(&self) -> &'static str {
        match self {
            Self::Running(_) => "RUNNING",
            Self::Dead(_) => "DEAD",
            Self::Parked(_) => "WAITS_FOR_SLOTS",
            Self::Absent(_) => "ABSENT",
            Self::OrderAsks { .. } | Self::MessageAsks { .. } | Self::ScheduleAsks { .. } => "WOULD_BE_PUT_BACK",
            Self::TooLate { .. } => "WOULD_BE_MOVED_BACK",
            Self::Past { .. } => "TIME_HAS_PASSED",
        }
    }
}

fn clock_time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Why a job could not be cancelled or rescheduled.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    #[error(transparent)]
    Refused(#[from] JobRefusal),
    #[error("nothing waits that long; choose a shorter time")]
    TooLong,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Schedule(#[from] TaskScheduleError),
}

/// When a job is to run instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RescheduleTime {
    /// After this time from now.
    In(Duration),
    /// By Postgres' clock.
    At(DateTime<Utc>),
}

/// A job that was rescheduled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RescheduledJob {
    pub due: DateTime<Utc>,
    /// Its row or schedule says later: run before that, the job does nothing but wait on.
    pub not_before: Option<DateTime<Utc>>,
}

/// Removes a waiting job that no row asks for.
pub async fn cancel_job(app: &App, job: &JobId) -> Result<(), OperateError> {
    must_wait(app, job).await?;
    let id = || job.clone();
    let cancelled = match find_wanted_job(app, job).await?.map(|wanted| wanted.by) {
        Some(JobAsker::Order { id: order, status }) => Err(JobRefusal::OrderAsks { job: id(), order, status }),
        Some(JobAsker::Message { subject, expires_at }) => {
            Err(JobRefusal::MessageAsks { job: id(), subject, expires_at })
        }
        Some(JobAsker::Schedule(schedule)) => Err(JobRefusal::ScheduleAsks { job: id(), schedule }),
        None => match app.queue().cancel(job, &jobs::queues::ALL).await? {
            CancelVerdict::Removed => Ok(()),
            CancelVerdict::Running => Err(JobRefusal::Running(id())),
            CancelVerdict::Dead => Err(JobRefusal::Dead(id())),
            CancelVerdict::Absent => Err(JobRefusal::Absent(id())),
        },
    };
    Ok(cancelled?)
}

/// As [`cancel_job`], with its record.
pub async fn cancel_recorded(app: &App, job: &JobId, by: ActionAuthor<'_>) -> Result<(), OperateError> {
    // The record is written first, so that no job is cancelled while Postgres is away.
    let mut tx = app.db.begin().await?;
    let values = ActionValues::removed(json!({ "waits": true }));
    record_action(&mut tx, by, StaffAction::JobCancelled, job.as_str(), values).await?;
    cancel_job(app, job).await?;
    Ok(tx.commit().await?)
}

/// As [`reschedule_job`], with its record.
pub async fn reschedule_recorded(
    app: &App,
    job: &JobId,
    when: RescheduleTime,
    by: ActionAuthor<'_>,
) -> Result<RescheduledJob, OperateError> {
    let mut tx = app.db.begin().await?;
    let before = app.queue().find_job(job, &jobs::queues::ALL).await?.map(|found| found.at_ms);
    let moved = reschedule_job(app, job, when).await?;
    let values = ActionValues::changed(json!({ "due_ms": before }), json!({ "due": moved.due }));
    let subject = format!("{job} to {}", clock_time(moved.due));
    record_action(&mut tx, by, StaffAction::JobRescheduled, &subject, values).await?;
    tx.commit().await?;
    Ok(moved)
}

/// Refuses a job that does not wait.
async fn must_wait(app: &App, job: &JobId) -> Result<(), OperateError> {
    let found = app.queue().find_job(job, &jobs::queues::ALL).await?;
    match found.map(|found| found.state) {
        Some(JobState::Due | JobState::Suspect | JobState::Parked) => Ok(()),
        Some(JobState::Leased) => Err(JobRefusal::Running(job.clone()).into()),
        Some(JobState::Dead) => Err(JobRefusal::Dead(job.clone()).into()),
        None => Err(JobRefusal::Absent(job.clone()).into()),
    }
}

/// Lets a waiting job run at another time, if it would stay there.
pub async fn reschedule_job(app: &App, job: &JobId, when: RescheduleTime) -> Result<RescheduledJob, OperateError> {
    must_wait(app, job).await?;
    let now = db::database_now(&app.db).await?;
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
    if let Some(wanted) = find_wanted_job(app, job).await? {
        // A schedule's next run is enqueued again and again, and the earlier time stays.
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
    match app.queue().reschedule(job, &jobs::queues::ALL, delay).await? {
        RescheduleVerdict::Moved => Ok(RescheduledJob { due, not_before }),
        RescheduleVerdict::Running => Err(JobRefusal::Running(id()).into()),
        RescheduleVerdict::Dead => Err(JobRefusal::Dead(id()).into()),
        RescheduleVerdict::Parked => Err(JobRefusal::Parked(id()).into()),
        RescheduleVerdict::Absent => Err(JobRefusal::Absent(id()).into()),
    }
}
