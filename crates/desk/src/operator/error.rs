//! Reasons that a job was not cancelled or rescheduled.

use chrono::{DateTime, SecondsFormat, Utc};
use jobs::OrderId;
use model::{messages::MessageSubject, order::OrderStatus};

use queue::{JobId, StoreError};
use settings::TaskScheduleError;

/// Reason that a job was not changed. The text names the remedy.
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
        "{order} is {status} and needs {job}: the reconciler would restore the job; end the order instead: dispatchq \
         order cancel {order}"
    )]
    OrderAsks { job: JobId, order: OrderId, status: OrderStatus },
    #[error(
        "{job} delivers a message of {subject}: the reconciler would restore the job; it ends with its delivery, or at {at}",
        at = clock_time(*.expires_at)
    )]
    MessageAsks { job: JobId, subject: MessageSubject, expires_at: DateTime<Utc> },
    #[error(
        "{job} is the next run of the schedule '{schedule}': the reconciler would restore the job; remove the schedule from \
         [schedules] in config.toml instead"
    )]
    ScheduleAsks { job: JobId, schedule: &'static str },
    #[error(
        "{job} is due at {due} by its {by}: the reconciler would move it back from {wanted}; choose a time up to \
         {latest}",
        due = clock_time(*.due), wanted = clock_time(*.wanted), latest = clock_time(*.latest)
    )]
    TooLate { job: JobId, by: &'static str, due: DateTime<Utc>, wanted: DateTime<Utc>, latest: DateTime<Utc> },
    #[error("{at} has passed; run it now: dispatchq job run-now {job}", at = clock_time(*.at))]
    Past { job: JobId, at: DateTime<Utc> },
}

impl JobRefusal {
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

pub(super) fn clock_time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Error of cancelling or rescheduling a job.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    #[error(transparent)]
    Refused(#[from] JobRefusal),
    #[error("the time is too far in the future; choose an earlier one")]
    TooLong,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Schedule(#[from] TaskScheduleError),
}
