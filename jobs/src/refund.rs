//! Asks the payment service to refund an order's payment, until the service reports success or refusal.

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefundOrder {
    pub order: OrderId,
}

impl Job for RefundOrder {
    const KIND: &'static str = "refund";
    const QUEUE: &'static str = queues::COMPENSATION;

    fn id(&self) -> JobId {
        self.order.job_id(Self::KIND)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        Ok(Self { order: OrderId::from_job_id(id)? })
    }
}
