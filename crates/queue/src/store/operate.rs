//! What operators do with single jobs that are due. For humans, outside the hot path.

use std::time::Duration;

use super::{
    client::Store,
    error::StoreError,
    script::{CANCEL, NamedScript, RESCHEDULE},
};
use crate::job::{JobId, round_up_ms};

/// What became of a job that was to be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelVerdict {
    /// It was due, now or later, or parked, and is gone.
    Removed,
    /// It is being performed; nothing changed.
    Running,
    /// It is dead already; nothing changed.
    Dead,
    /// There is no such job in these queues.
    Absent,
}

/// What became of a job that was to be rescheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RescheduleVerdict {
    /// It is due exactly after the delay, be that earlier or later than before.
    Moved,
    /// It is being performed; nothing changed.
    Running,
    /// It is dead: requeue it. Nothing changed.
    Dead,
    /// It is parked and runs as soon as it has its slots. Nothing changed.
    Parked,
    /// There is no such job in these queues.
    Absent,
}

impl Store {
    /// Removes a job that is due or parked, wherever it is in these queues.
    pub async fn cancel(&self, id: &JobId, queues: &[&str]) -> Result<CancelVerdict, StoreError> {
        Ok(match self.run_operation(&CANCEL, id, queues, None).await? {
            1 => CancelVerdict::Removed,
            2 => CancelVerdict::Running,
            3 => CancelVerdict::Dead,
            4 => CancelVerdict::Absent,
            other => return Err(StoreError::invalid_answer(CANCEL.name, other)),
        })
    }

    /// Lets a due job run after this delay instead; zero runs it now, and wakes a worker.
    ///
    /// When it then lies a minute or more behind its row's deadline, a `repair` moves it back.
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
