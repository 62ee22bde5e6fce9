//! Ends an order that has found no driver within its lifetime (30 minutes by default): LIFETIME_TIMEOUT.

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifetime {
    pub order: OrderId,
}

impl Job for Lifetime {
    const KIND: &'static str = "lifetime";
    const QUEUE: &'static str = queues::LIFETIME_CANCEL;

    fn id(&self) -> JobId {
        self.order.job(Self::KIND)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        Ok(Self { order: OrderId::of_job(id)? })
    }
}
