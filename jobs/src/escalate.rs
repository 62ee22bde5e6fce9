//! Escalates an alert that was not acknowledged in time. The alert's row has the time and the count.

use job_contract::{DecodeError, Job, JobId};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EscalateAlert {
    pub order: OrderId,
    /// The number in the job id is the alert's and not that of the escalation, because an order may have several
    /// alerts.
    pub alert_id: i64,
}

impl Job for EscalateAlert {
    const KIND: &'static str = "escalate";
    const QUEUE: &'static str = queues::NOTIFY;

    fn id(&self) -> JobId {
        self.order.numbered_job_id(Self::KIND, self.alert_id)
    }

    fn decode(id: &JobId, _payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        let (order, alert_id) = OrderId::from_numbered_job_id(id)?;
        Ok(Self { order, alert_id })
    }
}
