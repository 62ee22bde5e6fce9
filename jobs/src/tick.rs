//! One run of a schedule. The slot is its scheduled time, so it is one job, however many replicas enqueue it.

use job_contract::{DecodeError, Job, JobId};

use crate::queues;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeriodicTick {
    /// Name of the schedule: letters, digits, '_' and '-'.
    pub schedule: String,
    /// Unix time in seconds.
    pub slot: i64,
}

impl Job for PeriodicTick {
    const KIND: &'static str = "tick";
    const QUEUE: &'static str = queues::PERIODIC;
    /// A cleanup after a long pause takes time.
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
