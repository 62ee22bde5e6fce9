//! Starts attempt n of an order: finds the candidates near the pickup and offers to the first.

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    pub order: OrderId,
    pub attempt: u32,
}

impl Job for Dispatch {
    const KIND: &'static str = "dispatch";
    const QUEUE: &'static str = queues::DISPATCH;

    fn id(&self) -> JobId {
        self.order.numbered_job(Self::KIND, self.attempt)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        let (order, attempt) = OrderId::of_numbered_job(id)?;
        Ok(Self { order, attempt })
    }
}
