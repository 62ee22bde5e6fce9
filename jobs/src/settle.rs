//! Asks the provider how a transaction ended whose cycle was left UNRESOLVED.

use std::time::Duration;

use job_contract::{DecodeError, Job, JobId};

use crate::{BindingId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettleTransaction {
    pub binding: BindingId,
    /// Cycle that was left UNRESOLVED.
    pub cycle: u64,
}

impl Job for SettleTransaction {
    const KIND: &'static str = "settle";
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
