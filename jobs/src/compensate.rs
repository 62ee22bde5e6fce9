//! Gives a COMPENSATING order its final status, depending on its payment, and raises the alerts for that.

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompensateOrder {
    pub order: OrderId,
}

impl Job for CompensateOrder {
    const KIND: &'static str = "compensate";
    const QUEUE: &'static str = queues::COMPENSATION;

    fn id(&self) -> JobId {
        self.order.job_id(Self::KIND)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        Ok(Self { order: OrderId::from_job_id(id)? })
    }
}
