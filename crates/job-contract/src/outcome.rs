//! What a handler answers. Outcomes are values: the engine never guesses from an error's text.

use std::time::Duration;

use crate::{
    job::{JobAddress, NewJob},
    slots::SlotNeed,
};

/// The end of one run of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Finished. The follow-ups are inserted in the same atomic step that removes the job, and the superseded jobs leave in it
    /// if they wait.
    Done { then: Vec<NewJob>, superseded: Vec<JobAddress> },
    /// Not now: not due by the row, or something the job needs is unreachable. Spends no try.
    Snooze { delay: Duration },
    /// The slots that the job needs are taken: it waits in their line and runs again when it has them. Spends no try.
    Park(SlotNeed),
    /// This run failed. The job runs again by its [`RetryPolicy`](crate::RetryPolicy), and is dead when that is spent.
    Retry(String),
    /// Can never work. Kept with its error until a person looks.
    Dead(String),
}

impl Outcome {
    /// Finished, nothing follows.
    pub fn done() -> Self {
        Self::then_enqueue(Vec::new())
    }

    /// Finished, these follow.
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
