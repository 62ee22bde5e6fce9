//! Sends the OTP of cycle n to the provider, or ends the cycle if its OTP is overdue.

use std::time::Duration;

use job_contract::{DecodeError, Job, JobId};

use crate::{BindingId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmitOtp {
    pub binding: BindingId,
    /// Cycle that waits for the OTP.
    pub cycle: u64,
}

impl Job for SubmitOtp {
    const KIND: &'static str = "otp";
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
