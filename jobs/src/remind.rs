//! Reminds the dispatchers of an order that has waited for them too long. The row of its alert holds the time and the count.

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remind {
    pub order: OrderId,
    /// The alert that told the dispatchers first.
    pub alert_id: i64,
}

impl Job for Remind {
    const KIND: &'static str = "remind";
    const QUEUE: &'static str = queues::NOTIFY;

    fn id(&self) -> JobId {
        self.order.numbered_job(Self::KIND, self.alert_id)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        let (order, alert_id) = OrderId::of_numbered_job(id)?;
        Ok(Self { order, alert_id })
    }
}
