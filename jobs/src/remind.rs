//! Reminds the dispatchers of an order that has waited for them too long. The row of its alert has the time and the
//! count.

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemindDispatchers {
    pub order: OrderId,
    /// Alert that first notified the dispatchers.
    pub alert_id: i64,
}

impl Job for RemindDispatchers {
    const KIND: &'static str = "remind";
    const QUEUE: &'static str = queues::NOTIFY;

    fn id(&self) -> JobId {
        self.order.numbered_job_id(Self::KIND, self.alert_id)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        let (order, alert_id) = OrderId::from_numbered_job_id(id)?;
        Ok(Self { order, alert_id })
    }
}
