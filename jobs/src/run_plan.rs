//! Runs the next items of a plan: a bulk staff action whose exact ids were stored before it started.

use std::time::Duration;

use job_contract::{DecodeError, Job, JobId};
use uuid::Uuid;

use crate::queues;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPlan {
    pub plan: Uuid,
}

impl Job for RunPlan {
    const KIND: &'static str = "plan";
    /// Not the queue of the jobs that the plan changes, because that queue may be paused while a plan stops everything.
    const QUEUE: &'static str = queues::PERIODIC;
    const TIMEOUT: Duration = Duration::from_secs(60);

    fn id(&self) -> JobId {
        JobId::parse(format!("{}:{}", Self::KIND, self.plan)).expect("a UUID fits into a job id")
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        let plan = id.key().parse().map_err(|error| DecodeError::new(id, error))?;
        Ok(Self { plan })
    }
}
