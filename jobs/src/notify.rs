//! Delivers one outbox message over one channel. The outbox row holds the message, its tries and its next due time.

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendNotification {
    pub order: OrderId,
    pub outbox_id: i64,
}

impl Job for SendNotification {
    const KIND: &'static str = "notify";
    const QUEUE: &'static str = queues::NOTIFY;

    fn id(&self) -> JobId {
        self.order.numbered_job_id(Self::KIND, self.outbox_id)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        let (order, outbox_id) = OrderId::from_numbered_job_id(id)?;
        Ok(Self { order, outbox_id })
    }
}
