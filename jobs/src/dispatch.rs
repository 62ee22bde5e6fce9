//! Starts attempt n of an order: finds the candidates near the pickup and sends an offer to the first one.

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatchOrder {
    pub order: OrderId,
    pub attempt: u32,
}

impl Job for DispatchOrder {
    const KIND: &'static str = "dispatch";
    const QUEUE: &'static str = queues::DISPATCH;

    fn id(&self) -> JobId {
        self.order.numbered_job_id(Self::KIND, self.attempt)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        let (order, attempt) = OrderId::from_numbered_job_id(id)?;
        Ok(Self { order, attempt })
    }
}
