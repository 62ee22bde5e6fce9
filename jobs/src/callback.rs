//! Processes a partner's callback that is stored in the inbox. The inbox row has the callback's content.

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyCallback {
    pub order: OrderId,
    pub inbox_id: i64,
}

impl Job for ApplyCallback {
    const KIND: &'static str = "callback";
    const QUEUE: &'static str = queues::JOBID_POLL;

    fn id(&self) -> JobId {
        self.order.numbered_job_id(Self::KIND, self.inbox_id)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        let (order, inbox_id) = OrderId::from_numbered_job_id(id)?;
        Ok(Self { order, inbox_id })
    }
}
