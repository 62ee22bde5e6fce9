//! One run of a schedule. The slot is the time it stands for, so that however many replicas enqueue it, it is one job.

use job_contract::{DecodeError, Job, JobId};

use crate::queues;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeriodicTick {
    /// Name of the schedule: letters, digits, '_' and '-'.
    pub schedule: String,
    /// Seconds since the epoch.
    pub slot: i64,
}

impl Job for PeriodicTick {
    const KIND: &'static str = "tick";
    const QUEUE: &'static str = queues::PERIODIC;
    /// Cleaning up after a long pause takes its time.
    const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(600);

    fn id(&self) -> JobId {
        JobId::parse(format!("{}:{}:{}", Self::KIND, self.schedule, self.slot))
            .expect("a schedule's name fits into a job id")
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        let (schedule, slot) = id.key().rsplit_once(':').ok_or_else(|| DecodeError::new(id, "no slot"))?;
        let slot = slot.parse().map_err(|_| DecodeError::new(id, format!("'{slot}' is no slot")))?;
        Ok(Self { schedule: schedule.to_owned(), slot })
    }
}
