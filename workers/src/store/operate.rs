//! What operators do with single jobs that are due. For humans, outside the hot path.

use std::time::Duration;

use super::{
    Store, StoreError,
    script::{CANCEL, NamedScript, RESCHEDULE},
};
use crate::job::{JobId, whole_ms};

/// What became of a job that was to be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It was due, now or later, and is gone.
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
pub enum Rescheduled {
    /// It is due exactly after the delay, be that earlier or later than before.
    Moved,
    /// It is being performed; nothing changed.
    Running,
    /// It is dead: requeue it. Nothing changed.
    Dead,
    /// There is no such job in these queues.
    Absent,
}

impl Store {
    /// Removes a job that is due, wherever it is in these queues.
    pub async fn cancel(&self, id: &JobId, queues: &[&str]) -> Result<Cancelled, StoreError> {
        Ok(match self.operate(&CANCEL, id, queues, None).await? {
            1 => Cancelled::Removed,
            2 => Cancelled::Running,
            3 => Cancelled::Dead,
            4 => Cancelled::Absent,
            other => return Err(StoreError::answer(CANCEL.name, other)),
        })
    }

    /// Lets a due job run after this delay instead; zero runs it now, and wakes a worker.
    ///
    /// When it then lies a minute or more behind its row's deadline, a `repair` moves it back.
    pub async fn reschedule(&self, id: &JobId, queues: &[&str], delay: Duration) -> Result<Rescheduled, StoreError> {
        Ok(match self.operate(&RESCHEDULE, id, queues, Some(delay)).await? {
            1 => Rescheduled::Moved,
            2 => Rescheduled::Running,
            3 => Rescheduled::Dead,
            4 => Rescheduled::Absent,
            other => return Err(StoreError::answer(RESCHEDULE.name, other)),
        })
    }

    async fn operate(
        &self,
        script: &'static NamedScript,
        id: &JobId,
        queues: &[&str],
        delay: Option<Duration>,
    ) -> Result<u8, StoreError> {
        let mut call = self.job_script(script, queues.iter().copied());
        call.arg(id.as_str());
        if let Some(delay) = delay {
            call.arg(whole_ms(delay));
        }
        self.run(&call).await
    }
}
