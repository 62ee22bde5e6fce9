//! Events that a producer can subscribe to.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{CANCELLED_AFTER_PAYMENT, JOB_ID_RETRIEVED, MessageKind};
use crate::order::OrderStep;

/// An event that a producer can subscribe to, as named in `[producers.NAME] events`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProducerEvent {
    /// A step of an order. Also in the stream.
    Step(OrderStep),
    /// A partner's job id is known. Only by webhook.
    JobIdRetrieved,
    /// A paid order ended without a job id. Only by webhook.
    CancelledAfterPayment,
}

impl ProducerEvent {
    pub const ALL: [Self; 12] = [
        Self::Step(OrderStep::Created),
        Self::Step(OrderStep::Updated),
        Self::Step(OrderStep::Scheduled),
        Self::Step(OrderStep::Offered),
        Self::Step(OrderStep::Assigned),
        Self::Step(OrderStep::PickedUp),
        Self::Step(OrderStep::Completed),
        Self::Step(OrderStep::Cancelled),
        Self::Step(OrderStep::Held),
        Self::Step(OrderStep::Refunded),
        Self::JobIdRetrieved,
        Self::CancelledAfterPayment,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Step(step) => step.as_str(),
            Self::JobIdRetrieved => JOB_ID_RETRIEVED,
            Self::CancelledAfterPayment => CANCELLED_AFTER_PAYMENT,
        }
    }

    /// Returns the event of a message kind; `None` if producers cannot subscribe to it.
    pub fn of_message(kind: &str) -> Option<Self> {
        match MessageKind::from_stored(kind)? {
            MessageKind::Step(step) => Some(Self::Step(step)),
            MessageKind::JobIdRetrieved => Some(Self::JobIdRetrieved),
            MessageKind::CancelledAfterPayment => Some(Self::CancelledAfterPayment),
            _ => None,
        }
    }
}

impl fmt::Display for ProducerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ProducerEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ProducerEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let known = || Self::ALL.map(Self::as_str).join(", ");
        Self::of_message(&word)
            .ok_or_else(|| de::Error::custom(format!("'{word}' is not an event; name some of {}", known())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule L5: Each producer event is parsed as it is written, and each step of an order is an event.
    #[test]
    fn events_of_producers_read_as_written() {
        for event in ProducerEvent::ALL {
            let word = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<ProducerEvent>(&word).unwrap(), event);
        }
        for step in OrderStep::ALL {
            assert!(ProducerEvent::ALL.contains(&ProducerEvent::Step(step)), "{step}");
        }
        let wrong = serde_json::from_str::<ProducerEvent>("\"order.lost\"").unwrap_err().to_string();
        assert!(wrong.contains("order.lost") && wrong.contains("order.job_id_retrieved"), "{wrong}");
    }
}
