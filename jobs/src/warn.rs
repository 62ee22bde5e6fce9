//! Notifies dispatchers of a scheduled order that has no driver shortly before its pickup (10 minutes by default).

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarnOfPickup {
    pub order: OrderId,
}

impl Job for WarnOfPickup {
    const KIND: &'static str = "warn";
    const QUEUE: &'static str = queues::LIFETIME_CANCEL;

    fn id(&self) -> JobId {
        self.order.job_id(Self::KIND)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        Ok(Self { order: OrderId::from_job_id(id)? })
    }
}
