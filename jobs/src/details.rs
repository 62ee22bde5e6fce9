//! Sends changed places, or the contact, of attempt n's booking to the partner.

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendDetails {
    pub order: OrderId,
    pub attempt: u32,
}

impl Job for SendDetails {
    const KIND: &'static str = "details";
    const QUEUE: &'static str = queues::JOBID_POLL;

    fn id(&self) -> JobId {
        self.order.numbered_job_id(Self::KIND, self.attempt)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        let (order, attempt) = OrderId::from_numbered_job_id(id)?;
        Ok(Self { order, attempt })
    }
}
