//! Kinds of messages, as rows, channels and commands name them.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::order::OrderStep;

pub const OFFER: &str = "OFFER";
pub const ASSIGNED: &str = "ASSIGNED";
pub const UNASSIGNED: &str = "UNASSIGNED";
pub const UPDATED: &str = "UPDATED";
pub const DISPATCH_FAILED: &str = "DISPATCH_FAILED";
pub const REMINDER: &str = "REMINDER";
pub const MANUAL_REFUND_REQUIRED: &str = "MANUAL_REFUND_REQUIRED";
pub const UNEXPECTED_STATE: &str = "UNEXPECTED_STATE";
pub const TIMER_DEAD: &str = "TIMER_DEAD";
pub const STALE_TRIP: &str = "STALE_TRIP";
pub const SCHEDULED_WITHOUT_DRIVER: &str = "SCHEDULED_WITHOUT_DRIVER";
pub const PARTNER_REFUSES_KEY: &str = "PARTNER_REFUSES_KEY";
pub const FAILED_TO_GET_ORDER: &str = "FAILED_TO_GET_ORDER";
pub const STATUS_UPDATE_FAILED: &str = "STATUS_UPDATE_FAILED";
pub const ESCALATION: &str = "ESCALATION";
pub const SLA_WARNING: &str = "SLA_WARNING";
pub const ORDER_CANCELLED: &str = "ORDER_CANCELLED";
pub const JOB_ID_RETRIEVED: &str = "order.job_id_retrieved";
pub const CANCELLED_AFTER_PAYMENT: &str = "order.cancelled_after_payment_no_job_id";
pub const OTP_WANTED: &str = "OTP_WANTED";
pub const TRANSACTION_UNRESOLVED: &str = "TRANSACTION_UNRESOLVED";
/// Event with which a producer tests an endpoint. It is about no order and is written with its payload.
pub const ENDPOINT_TEST: &str = "endpoint.test";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageKind {
    Offer,
    Assigned,
    Unassigned,
    Updated,
    DispatchFailed,
    Reminder,
    ManualRefundRequired,
    UnexpectedState,
    TimerDead,
    StaleTrip,
    ScheduledWithoutDriver,
    PartnerRefusesKey,
    FailedToGetOrder,
    StatusUpdateFailed,
    Escalation,
    SlaWarning,
    OrderCancelled,
    JobIdRetrieved,
    CancelledAfterPayment,
    OtpWanted,
    TransactionUnresolved,
    /// A step event, for the producer that owns the order.
    Step(OrderStep),
}

impl MessageKind {
    pub const ALL: [Self; 31] = [
        Self::Offer,
        Self::Assigned,
        Self::Unassigned,
        Self::Updated,
        Self::DispatchFailed,
        Self::Reminder,
        Self::ManualRefundRequired,
        Self::UnexpectedState,
        Self::TimerDead,
        Self::StaleTrip,
        Self::ScheduledWithoutDriver,
        Self::PartnerRefusesKey,
        Self::FailedToGetOrder,
        Self::StatusUpdateFailed,
        Self::Escalation,
        Self::SlaWarning,
        Self::OrderCancelled,
        Self::JobIdRetrieved,
        Self::CancelledAfterPayment,
        Self::OtpWanted,
        Self::TransactionUnresolved,
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
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Offer => OFFER,
            Self::Assigned => ASSIGNED,
            Self::Unassigned => UNASSIGNED,
            Self::Updated => UPDATED,
            Self::DispatchFailed => DISPATCH_FAILED,
            Self::Reminder => REMINDER,
            Self::ManualRefundRequired => MANUAL_REFUND_REQUIRED,
            Self::UnexpectedState => UNEXPECTED_STATE,
            Self::TimerDead => TIMER_DEAD,
            Self::StaleTrip => STALE_TRIP,
            Self::ScheduledWithoutDriver => SCHEDULED_WITHOUT_DRIVER,
            Self::PartnerRefusesKey => PARTNER_REFUSES_KEY,
            Self::FailedToGetOrder => FAILED_TO_GET_ORDER,
            Self::StatusUpdateFailed => STATUS_UPDATE_FAILED,
            Self::Escalation => ESCALATION,
            Self::SlaWarning => SLA_WARNING,
            Self::OrderCancelled => ORDER_CANCELLED,
            Self::JobIdRetrieved => JOB_ID_RETRIEVED,
            Self::CancelledAfterPayment => CANCELLED_AFTER_PAYMENT,
            Self::OtpWanted => OTP_WANTED,
            Self::TransactionUnresolved => TRANSACTION_UNRESOLVED,
            Self::Step(step) => step.as_str(),
        }
    }

    /// Returns the kind that a row names; `None` if this version does not know it.
    pub fn from_stored(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// Returns whether an alert of this kind is for dispatchers. Such alerts are repeated as reminders.
    pub const fn is_for_dispatchers(self) -> bool {
        matches!(self, Self::DispatchFailed | Self::ScheduledWithoutDriver)
    }

    /// Returns whether a message of this kind is useless after it expires. Its delivery then ends as expired, not as
    /// failed.
    pub const fn is_short_lived(self) -> bool {
        matches!(self, Self::Offer | Self::OtpWanted)
    }
}

/// Returns whether the alert of a row is for dispatchers. Such alerts are repeated as reminders.
pub fn is_for_dispatchers(kind: &str) -> bool {
    MessageKind::from_stored(kind).is_some_and(MessageKind::is_for_dispatchers)
}

impl fmt::Display for MessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for MessageKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for MessageKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Self::from_stored(&word).ok_or_else(|| de::Error::custom(format!("'{word}' is not a kind of message")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_as_it_is_written() {
        for kind in MessageKind::ALL {
            assert_eq!(MessageKind::from_stored(kind.as_str()), Some(kind));
        }
        assert_eq!(MessageKind::from_stored("ORDER_COMPLETED"), None);
        assert!(is_for_dispatchers(DISPATCH_FAILED) && !is_for_dispatchers(TIMER_DEAD) && !is_for_dispatchers("NEWS"));
    }
}
