//! Asks the partner for the state of an order's current booking, mainly for its job id. `number` counts the requests.

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollPartner {
    pub order: OrderId,
    /// Starts at 1 for each booking.
    pub number: u32,
}

impl Job for PollPartner {
    const KIND: &'static str = "poll";
    const QUEUE: &'static str = queues::JOBID_POLL;

    fn id(&self) -> JobId {
        self.order.numbered_job_id(Self::KIND, self.number)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        let (order, number) = OrderId::from_numbered_job_id(id)?;
        Ok(Self { order, number })
    }
}
