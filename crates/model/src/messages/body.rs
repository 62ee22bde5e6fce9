//! What messages say, as types. Their JSON is what rows keep and receivers get: names and order of fields are fixed.
//!
//! A field that is added after a release must be optional, because rows of the previous release are still read.
//!
//! `alerts`: those of alerts. `stored`: messages as rows hold them, and how they are read.

mod alerts;
mod stored;

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use jobs::{BindingId, OrderId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    alerts::{
        ActionHead, AlertSeverity, AlertTeam, FailedUpdateBody, OrderAlertBody, RefusedKeyBody, RepeatedAlertBody,
        SlaWarningBody, StaleTripBody,
    },
    stored::StoredMessage,
};
use super::{addressee::Addressee, kind::*};
use crate::{
    binding::{AccountId, ServerId, TrxId},
    ids::{AreaId, DriverId, OfferId, ServiceType},
    order::{EventReason, OrderStatus, OrderStep, PaymentStatus},
};

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum MessageBody {
    Offer(OfferBody),
    Assigned(AssignmentBody),
    Unassigned(AssignmentBody),
    DispatchFailed(DispatchFailedBody),
    Reminder(RepeatedAlertBody),
    ManualRefundRequired(OrderAlertBody),
    UnexpectedState(OrderAlertBody),
    TimerDead(OrderAlertBody),
    StaleTrip(StaleTripBody),
    PartnerRefusesKey(RefusedKeyBody),
    FailedToGetOrder(ActionHead),
    StatusUpdateFailed(FailedUpdateBody),
    Escalation(RepeatedAlertBody),
    SlaWarning(SlaWarningBody),
    OrderCancelled(CustomerBody),
    JobIdRetrieved(JobIdBody),
    CancelledAfterPayment(PaidCancelBody),
    OtpWanted(OtpWantedBody),
    TransactionUnresolved(UnresolvedBody),
    Step(StepBody),
    /// A row of another version, which this version cannot read. It is delivered and shown as it is.
    Unknown(StoredMessage),
}

/// What happened, as receivers tell messages apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MessageEvent {
    #[serde(rename = "offer.created")]
    OfferCreated,
    #[serde(rename = "order.assigned")]
    OrderAssigned,
    #[serde(rename = "order.unassigned")]
    OrderUnassigned,
    #[serde(rename = "dispatcher.action_required")]
    DispatcherActionRequired,
    #[serde(rename = "dispatcher.reminder")]
    DispatcherReminder,
    #[serde(rename = "support.manual_action_required")]
    ManualActionRequired,
    #[serde(rename = "order.cancelled_after_payment_no_job_id")]
    CancelledAfterPayment,
    #[serde(rename = "customer.order_cancelled")]
    OrderCancelled,
    #[serde(rename = "binding.otp_wanted")]
    OtpWanted,
    #[serde(rename = "binding.transaction_unresolved")]
    TransactionUnresolved,
}

/// How a partner's job id came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetrievalMethod {
    /// The partner called back.
    Callback,
    /// We asked.
    Proactive,
}

/// The question to a driver: take this order?
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfferBody {
    pub event: MessageEvent,
    pub offer_id: OfferId,
    pub order_id: OrderId,
    pub driver_id: DriverId,
    pub service_type: ServiceType,
    pub attempt_no: i32,
    /// Whole metres.
    pub distance_m: f64,
    pub expires_at: DateTime<Utc>,
}

/// News to a driver who was given an order, or lost it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignmentBody {
    pub event: MessageEvent,
    pub order_id: OrderId,
    pub driver_id: DriverId,
    pub service_type: ServiceType,
    pub reason: String,
    pub timestamp: DateTime<Utc>,
}

/// The alert to dispatchers that no driver is left to ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DispatchFailedBody {
    pub event: MessageEvent,
    pub order_id: OrderId,
    pub service_type: ServiceType,
    pub area_id: Option<AreaId>,
    pub attempts: i32,
    pub lifetime_deadline: DateTime<Utc>,
    pub action: String,
    pub timestamp: DateTime<Utc>,
    /// The customer who waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer_id: Option<String>,
    #[serde(flatten)]
    pub addressee: Addressee,
}

/// Reason why an order ended, for its customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelCause {
    /// No driver took it in its time.
    NoDriver,
    /// The partner named no job id, or lost the booking.
    NotConfirmed,
    /// The driver gave it back when no time was left for another.
    DriverLeft,
    /// Staff ended it.
    ByStaff,
    /// It was paid after it had ended.
    PaidLate,
    /// What a newer version wrote.
    #[serde(other)]
    Other,
}

impl CancelCause {
    pub const ALL: [Self; 6] =
        [Self::NoDriver, Self::NotConfirmed, Self::DriverLeft, Self::ByStaff, Self::PaidLate, Self::Other];
}

/// News to the customer whose order was cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomerBody {
    pub event: MessageEvent,
    pub order_id: OrderId,
    pub customer_id: Option<String>,
    pub status: OrderStatus,
    /// A sentence in the customer's language.
    pub reason: String,
    /// The customer gets money back.
    pub refund: bool,
    pub timestamp: DateTime<Utc>,
    /// Why, for programs. This and the fields below are absent until the message is put into words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<CancelCause>,
    /// BCP 47: what the order asked for and, once it is put into words, what these are in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The heading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// All that the customer is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The event to the producer that a paid order was cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaidCancelBody {
    pub event: MessageEvent,
    pub order_id: OrderId,
    pub status: OrderStatus,
    pub payment_status: PaymentStatus,
    /// Times the partner was asked for a job id, over all bookings of the order; 0 of the own fleet.
    pub total_attempts: i32,
    pub action: MessageKind,
    pub timestamp: DateTime<Utc>,
}

/// The event to the producer that a partner's job id is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobIdBody {
    pub order_id: OrderId,
    pub job_id: String,
    pub attempts: u32,
    /// As Go's `time.ParseDuration` reads it.
    pub duration: String,
    pub method: RetrievalMethod,
    /// Of webhooks to subscribers alone: the requirement document's body has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<DateTime<Utc>>,
}

/// The request to hand in an OTP for a binding's open transaction. No OTP is ever in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtpWantedBody {
    pub event: MessageEvent,
    pub binding_id: BindingId,
    pub server_id: ServerId,
    pub account_id: AccountId,
    pub trx_id: TrxId,
    /// From 1. Above 1: the OTP before is used up.
    pub ask: i32,
    /// Until then an OTP can be handed in.
    pub deadline: DateTime<Utc>,
    pub timestamp: DateTime<Utc>,
}

/// The news that a binding's transaction was not final in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnresolvedBody {
    pub event: MessageEvent,
    pub binding_id: BindingId,
    pub server_id: ServerId,
    pub account_id: AccountId,
    pub trx_id: TrxId,
    /// When it should have been final.
    pub deadline: DateTime<Utc>,
    pub timestamp: DateTime<Utc>,
}

/// The event to the producer that its order took a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepBody {
    pub event: OrderStep,
    /// Of the form of the event.
    pub version: u16,
    /// Rises with the steps of one order.
    pub seq: i64,
    pub order_id: OrderId,
    /// After the step.
    pub status: OrderStatus,
    /// Before it; none of a creation.
    pub previous_status: Option<OrderStatus>,
    pub reason: EventReason,
    pub attempt_no: Option<i32>,
    pub driver_id: Option<DriverId>,
    pub timestamp: DateTime<Utc>,
}

impl MessageBody {
    /// The kind, as rows and channels spell it.
    pub fn kind(&self) -> &str {
        match self {
            Self::Offer(_) => OFFER,
            Self::Assigned(_) => ASSIGNED,
            Self::Unassigned(_) => UNASSIGNED,
            Self::DispatchFailed(_) => DISPATCH_FAILED,
            Self::Reminder(_) => REMINDER,
            Self::ManualRefundRequired(_) => MANUAL_REFUND_REQUIRED,
            Self::UnexpectedState(_) => UNEXPECTED_STATE,
            Self::TimerDead(_) => TIMER_DEAD,
            Self::StaleTrip(_) => STALE_TRIP,
            Self::PartnerRefusesKey(_) => PARTNER_REFUSES_KEY,
            Self::FailedToGetOrder(_) => FAILED_TO_GET_ORDER,
            Self::StatusUpdateFailed(_) => STATUS_UPDATE_FAILED,
            Self::Escalation(_) => ESCALATION,
            Self::SlaWarning(_) => SLA_WARNING,
            Self::OrderCancelled(_) => ORDER_CANCELLED,
            Self::JobIdRetrieved(_) => JOB_ID_RETRIEVED,
            Self::CancelledAfterPayment(_) => CANCELLED_AFTER_PAYMENT,
            Self::OtpWanted(_) => OTP_WANTED,
            Self::TransactionUnresolved(_) => TRANSACTION_UNRESOLVED,
            Self::Step(body) => body.event.as_str(),
            Self::Unknown(stored) => &stored.kind,
        }
    }

    /// The JSON that rows keep and receivers get.
    pub fn to_payload(&self) -> Value {
        serde_json::to_value(self).expect("a body has text keys and finite depth")
    }

    /// The id of the order or binding it is about, as text; empty if this version cannot tell.
    pub fn subject_id(&self) -> Cow<'_, str> {
        match self {
            Self::Offer(body) => body.order_id.as_str().into(),
            Self::Assigned(body) | Self::Unassigned(body) => body.order_id.as_str().into(),
            Self::DispatchFailed(body) => body.order_id.as_str().into(),
            Self::Reminder(body) | Self::Escalation(body) => body.order_id.as_str().into(),
            Self::SlaWarning(body) => body.repeated.order_id.as_str().into(),
            Self::OrderCancelled(body) => body.order_id.as_str().into(),
            Self::JobIdRetrieved(body) => body.order_id.as_str().into(),
            Self::CancelledAfterPayment(body) => body.order_id.as_str().into(),
            Self::OtpWanted(body) => body.binding_id.as_str().into(),
            Self::TransactionUnresolved(body) => body.binding_id.as_str().into(),
            Self::Step(body) => body.order_id.as_str().into(),
            Self::Unknown(stored) => {
                let id = |field: &str| show_field(&stored.payload[field]);
                id("order_id").or_else(|| id("binding_id")).unwrap_or_default().into()
            }
            alert => alert.alert_head().map_or(Cow::Borrowed(""), |head| head.order_id.as_str().into()),
        }
    }

    /// When it was told; `None` of offers, which tell when they end, and of what this version cannot read.
    pub fn told_at(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Assigned(body) | Self::Unassigned(body) => Some(body.timestamp),
            Self::DispatchFailed(body) => Some(body.timestamp),
            Self::Reminder(body) | Self::Escalation(body) => Some(body.timestamp),
            Self::SlaWarning(body) => Some(body.repeated.timestamp),
            Self::OrderCancelled(body) => Some(body.timestamp),
            Self::CancelledAfterPayment(body) => Some(body.timestamp),
            Self::OtpWanted(body) => Some(body.timestamp),
            Self::TransactionUnresolved(body) => Some(body.timestamp),
            Self::Step(body) => Some(body.timestamp),
            Self::Unknown(stored) => stored.payload["timestamp"].as_str()?.parse().ok(),
            alert => alert.alert_head().map(|head| head.timestamp),
        }
    }

    /// Returns whether the message says that it is urgent.
    pub fn is_urgent(&self) -> bool {
        match self {
            Self::Reminder(body) | Self::Escalation(body) => body.severity == AlertSeverity::High,
            Self::SlaWarning(body) => body.repeated.severity == AlertSeverity::High,
            Self::Unknown(stored) => stored.payload.get("severity").is_some(),
            alert => alert.alert_head().is_some_and(|head| head.severity == AlertSeverity::High),
        }
    }

    /// What an alert to support begins with.
    fn alert_head(&self) -> Option<&ActionHead> {
        match self {
            Self::ManualRefundRequired(body) | Self::UnexpectedState(body) | Self::TimerDead(body) => Some(&body.head),
            Self::StaleTrip(body) => Some(&body.alert.head),
            Self::PartnerRefusesKey(body) => Some(&body.head),
            Self::FailedToGetOrder(head) => Some(head),
            Self::StatusUpdateFailed(body) => Some(&body.head),
            _ => None,
        }
    }
}

/// A value on one line, whatever is in it; `None` of null.
pub(super) fn show_field(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(show_text(text)),
        other => Some(other.to_string()),
    }
}

/// A text on one line, whatever is in it.
pub(super) fn show_text(text: &str) -> String {
    text.replace(crate::plain_text::is_unsafe, " ")
}
