//! Result of a handler. Outcomes are values: the engine never infers one from the text of an error.

use std::time::Duration;

use crate::{
    job::{JobAddress, NewJob},
    slots::SlotNeed,
};

/// Result of one run of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Finished. The step that removes the job also inserts the follow-ups and cancels the superseded jobs that are
    /// due, atomically.
    Done { then: Vec<NewJob>, superseded: Vec<JobAddress> },
    /// Not now: the row is not due, or something that the job needs is unreachable. Spends no try.
    Snooze { delay: Duration },
    /// The slots that the job needs are taken. It waits in their line and runs again when it has them. Spends no try.
    Park(SlotNeed),
    /// This run failed. The job runs again by its [`RetryPolicy`](crate::RetryPolicy), and is dead after its last try.
    Retry(String),
    /// The job can never succeed. It is kept with its error until an operator decides.
    Dead(String),
}

impl Outcome {
    /// Creates `Done` without follow-ups.
    pub fn done() -> Self {
        Self::then_enqueue(Vec::new())
    }

    /// Creates `Done` with these follow-ups.
    pub fn then_enqueue(then: Vec<NewJob>) -> Self {
        Self::Done { then, superseded: Vec::new() }
    }

    /// Returns the name of this outcome in logs and metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Done { .. } => "done",
            Self::Snooze { .. } => "snooze",
            Self::Park(_) => "park",
            Self::Retry(_) => "retry",
            Self::Dead(_) => "dead",
        }
    }
}
