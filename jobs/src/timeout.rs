//! Ends attempt n of an order after its deadline: tries the next candidate, retries later, or gives up.

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpireAttempt {
    pub order: OrderId,
    pub attempt: u32,
}

impl Job for ExpireAttempt {
    const KIND: &'static str = "timeout";
    const QUEUE: &'static str = queues::DISPATCH_TIMEOUT;

    fn id(&self) -> JobId {
        self.order.numbered_job_id(Self::KIND, self.attempt)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        let (order, attempt) = OrderId::from_numbered_job_id(id)?;
        Ok(Self { order, attempt })
    }
}
