//! Slots to release.

use job_contract::SlotGrant;

use crate::job::JobId;

/// Slots of a job whose work has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedSlots {
    pub job: JobId,
    pub grant: SlotGrant,
}
