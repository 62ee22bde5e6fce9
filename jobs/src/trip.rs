//! Notifies support of an order whose driver has not picked up, or not completed the trip, in time (12 hours each by
//! default).

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportStaleTrip {
    pub order: OrderId,
}

impl Job for ReportStaleTrip {
    const KIND: &'static str = "trip";
    const QUEUE: &'static str = queues::LIFETIME_CANCEL;

    fn id(&self) -> JobId {
        self.order.job_id(Self::KIND)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        Ok(Self { order: OrderId::from_job_id(id)? })
    }
}
