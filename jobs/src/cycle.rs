//! Makes the next call of cycle n of a binding: starts it, asks for its state, or continues after a lost call.

use std::time::Duration;

use job_contract::{DecodeError, Job, JobId};

use crate::{BindingId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunCycle {
    pub binding: BindingId,
    /// Number of the cycle, from 1.
    pub cycle: u64,
}

impl Job for RunCycle {
    const KIND: &'static str = "cycle";
    const QUEUE: &'static str = queues::BINDING;
    const TIMEOUT: Duration = queues::BINDING_JOB_TIMEOUT;

    fn id(&self) -> JobId {
        self.binding.numbered_job_id(Self::KIND, self.cycle)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        let (binding, cycle) = BindingId::from_numbered_job_id(id)?;
        Ok(Self { binding, cycle })
    }
}
