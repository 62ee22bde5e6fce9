//! Ends an order that has found no driver within its lifetime (30 minutes by default): LIFETIME_TIMEOUT.

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpireOrder {
    pub order: OrderId,
}

impl Job for ExpireOrder {
    const KIND: &'static str = "lifetime";
    const QUEUE: &'static str = queues::LIFETIME_CANCEL;

    fn id(&self) -> JobId {
        self.order.job_id(Self::KIND)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        Ok(Self { order: OrderId::from_job_id(id)? })
    }
}
