//! Notifies support over one channel that an order's end could not be written. It is the only job about an order with a
//! payload, because it must not need the database that failed.

use std::time::Duration;

use job_contract::{DecodeError, Job, JobId, RetryPolicy};
use serde::{Deserialize, Serialize};

use crate::{OrderId, queues};

#[derive(Debug, Clone, PartialEq)]
pub struct SendAlarm {
    pub order: OrderId,
    /// Name of the configured channel.
    pub channel: String,
    pub content: AlarmContent,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlarmContent {
    /// Message as receivers get it.
    pub message: serde_json::Value,
    /// Whether the message was delivered. The job stays until the delivery log has the delivery, too.
    pub told: bool,
}

impl Job for SendAlarm {
    const KIND: &'static str = "alarm";
    const QUEUE: &'static str = queues::NOTIFY;
    /// Delays of 1, 2, 4 ... up to 600 s: some 24 hours in total.
    const RETRY: RetryPolicy = RetryPolicy {
        max_tries: 153,
        initial: Duration::from_secs(1),
        multiplier: 2.0,
        max: Duration::from_secs(600),
        jitter: 0.3,
    };

    fn id(&self) -> JobId {
        self.order.numbered_job_id(Self::KIND, &self.channel)
    }

    fn payload(&self) -> Option<serde_json::Value> {
        Some(serde_json::to_value(&self.content).expect("plain data becomes JSON"))
    }

    fn decode(id: &JobId, payload: Option<serde_json::Value>) -> Result<Self, DecodeError> {
        let (order, channel) = OrderId::from_numbered_job_id(id)?;
        let payload = payload.ok_or_else(|| DecodeError::new(id, "no payload"))?;
        let content = serde_json::from_value(payload).map_err(|e| DecodeError::new(id, e))?;
        Ok(Self { order, channel, content })
    }
}
