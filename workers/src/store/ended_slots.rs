//! Slots that go back to Redis, and the jobs ahead that they are passed on to.

use job_contract::SlotGrant;

use crate::job::JobId;

/// Slots of a job whose work has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedSlots {
    pub job: JobId,
    pub grant: SlotGrant,
}

/// Slots that are returned, and the job that takes over the slot of the shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotRelease {
    pub ended: EndedSlots,
    /// The job that has the slot of the shard from now on.
    pub passed_to: Option<JobAhead>,
}

/// A job of this process that was leased before the shard had a slot for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobAhead {
    pub job: JobId,
    /// The slots that this lease gave it.
    pub grant: SlotGrant,
}

impl From<EndedSlots> for SlotRelease {
    fn from(ended: EndedSlots) -> Self {
        Self { ended, passed_to: None }
    }
}
