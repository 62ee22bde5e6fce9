//! Messages as rows store them, and how they are parsed.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{super::kind::MessageKind, MessageBody};

/// A message as its row or its job stores it. Receivers get this payload, even if another version wrote fields that
/// this version does not know.
#[derive(Debug, Clone, PartialEq, Serialize, sqlx::FromRow)]
#[serde(into = "Value")]
pub struct StoredMessage {
    pub kind: String,
    pub payload: Value,
}

impl StoredMessage {
    /// Parses the content. Contents that this version does not know become [`MessageBody::Unknown`], not an error.
    pub fn read_body(&self) -> MessageBody {
        let Some(kind) = MessageKind::from_stored(&self.kind) else { return MessageBody::Unknown(self.clone()) };
        let payload = &self.payload;
        let body = match kind {
            MessageKind::Offer => read_as(payload, MessageBody::Offer),
            MessageKind::Assigned => read_as(payload, MessageBody::Assigned),
            MessageKind::Unassigned => read_as(payload, MessageBody::Unassigned),
            MessageKind::Updated => read_as(payload, MessageBody::Updated),
            MessageKind::DispatchFailed => read_as(payload, MessageBody::DispatchFailed),
            MessageKind::Reminder => read_as(payload, MessageBody::Reminder),
            MessageKind::ManualRefundRequired => read_as(payload, MessageBody::ManualRefundRequired),
            MessageKind::UnexpectedState => read_as(payload, MessageBody::UnexpectedState),
            MessageKind::TimerDead => read_as(payload, MessageBody::TimerDead),
            MessageKind::StaleTrip => read_as(payload, MessageBody::StaleTrip),
            MessageKind::ScheduledWithoutDriver => read_as(payload, MessageBody::ScheduledWithoutDriver),
            MessageKind::PartnerRefusesKey => read_as(payload, MessageBody::PartnerRefusesKey),
            MessageKind::FailedToGetOrder => read_as(payload, MessageBody::FailedToGetOrder),
            MessageKind::StatusUpdateFailed => read_as(payload, MessageBody::StatusUpdateFailed),
            MessageKind::Escalation => read_as(payload, MessageBody::Escalation),
            MessageKind::SlaWarning => read_as(payload, MessageBody::SlaWarning),
            MessageKind::OrderCancelled => read_as(payload, MessageBody::OrderCancelled),
            MessageKind::JobIdRetrieved => read_as(payload, MessageBody::JobIdRetrieved),
            MessageKind::CancelledAfterPayment => read_as(payload, MessageBody::CancelledAfterPayment),
            MessageKind::OtpWanted => read_as(payload, MessageBody::OtpWanted),
            MessageKind::TransactionUnresolved => read_as(payload, MessageBody::TransactionUnresolved),
            MessageKind::Step(_) => read_as(payload, MessageBody::Step),
        };
        body.unwrap_or_else(|| MessageBody::Unknown(self.clone()))
    }

    pub fn known_kind(&self) -> Option<MessageKind> {
        MessageKind::from_stored(&self.kind)
    }
}

fn read_as<T: DeserializeOwned>(payload: &Value, variant: fn(T) -> MessageBody) -> Option<MessageBody> {
    T::deserialize(payload).ok().map(variant)
}

impl From<StoredMessage> for Value {
    fn from(stored: StoredMessage) -> Self {
        stored.payload
    }
}
