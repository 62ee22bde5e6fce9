//! Operations on single jobs that are due. For operators, outside the hot path.

use std::time::Duration;

use super::{
    client::Store,
    error::StoreError,
    script::{CANCEL, NamedScript, RESCHEDULE},
};
use crate::job::{JobId, round_up_ms};

/// Result of cancelling a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelVerdict {
    /// The job was due, now or later, or parked, and is removed.
    Removed,
    /// The job is running; nothing changed.
    Running,
    /// The job is dead; nothing changed.
    Dead,
    /// These queues have no such job.
    Absent,
}

/// Result of rescheduling a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RescheduleVerdict {
    /// The job is due exactly after the delay, earlier or later than before.
    Moved,
    /// The job is running; nothing changed.
    Running,
    /// The job is dead and must be requeued instead; nothing changed.
    Dead,
    /// The job is parked and runs as soon as it has its slots; nothing changed.
    Parked,
    /// These queues have no such job.
    Absent,
}

impl Store {
    /// Removes a job that is due or parked, in whichever of these queues it is.
    pub async fn cancel(&self, id: &JobId, queues: &[&str]) -> Result<CancelVerdict, StoreError> {
        Ok(match self.run_operation(&CANCEL, id, queues, None).await? {
            1 => CancelVerdict::Removed,
            2 => CancelVerdict::Running,
            3 => CancelVerdict::Dead,
            4 => CancelVerdict::Absent,
            other => return Err(StoreError::invalid_answer(CANCEL.name, other)),
        })
    }

    /// Makes a due job run after this delay instead. Zero runs it now and wakes a worker.
    ///
    /// If the new due time is a minute or more after its row's deadline, a `repair` moves the job back.
    pub async fn reschedule(
        &self,
        id: &JobId,
        queues: &[&str],
        delay: Duration,
    ) -> Result<RescheduleVerdict, StoreError> {
        Ok(match self.run_operation(&RESCHEDULE, id, queues, Some(delay)).await? {
            1 => RescheduleVerdict::Moved,
            2 => RescheduleVerdict::Running,
            3 => RescheduleVerdict::Dead,
            4 => RescheduleVerdict::Absent,
            5 => RescheduleVerdict::Parked,
            other => return Err(StoreError::invalid_answer(RESCHEDULE.name, other)),
        })
    }

    async fn run_operation(
        &self,
        script: &'static NamedScript,
        id: &JobId,
        queues: &[&str],
        delay: Option<Duration>,
    ) -> Result<u8, StoreError> {
        let mut call = self.job_script(script, queues.iter().copied());
        call.push_arg(id.as_str());
        if let Some(delay) = delay {
            call.push_arg(round_up_ms(delay));
        }
        self.run_script(&call).await
    }
}
