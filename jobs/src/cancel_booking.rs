//! Cancels attempt n's booking at the partner, until the partner confirms it.

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelBooking {
    pub order: OrderId,
    pub attempt: u32,
}

impl Job for CancelBooking {
    const KIND: &'static str = "cancel-booking";
    const QUEUE: &'static str = queues::COMPENSATION;

    fn id(&self) -> JobId {
        self.order.numbered_job_id(Self::KIND, self.attempt)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        let (order, attempt) = OrderId::from_numbered_job_id(id)?;
        Ok(Self { order, attempt })
    }
}
