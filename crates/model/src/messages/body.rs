//! Typed contents of messages. Rows store this JSON and receivers get it, so the names and the order of fields are
//! fixed.
//!
//! A field that is added after a release must be optional, because rows of the previous release are still read.
//!
//! `alerts`: contents of alerts. `stored`: messages as rows store them, and how they are parsed.

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

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum MessageBody {
    Offer(OfferBody),
    Assigned(AssignmentBody),
    Unassigned(AssignmentBody),
    Updated(UpdateBody),
    DispatchFailed(DispatchFailedBody),
    Reminder(RepeatedAlertBody),
    ManualRefundRequired(OrderAlertBody),
    UnexpectedState(OrderAlertBody),
    TimerDead(OrderAlertBody),
    StaleTrip(StaleTripBody),
    ScheduledWithoutDriver(ScheduledAlertBody),
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
    /// A row of another version that this version cannot parse. It is delivered and shown unchanged.
    Unknown(StoredMessage),
}

/// Event name by which receivers distinguish messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MessageEvent {
    #[serde(rename = "offer.created")]
    OfferCreated,
    #[serde(rename = "order.assigned")]
    OrderAssigned,
    #[serde(rename = "order.unassigned")]
    OrderUnassigned,
    #[serde(rename = "order.updated")]
    OrderUpdated,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetrievalMethod {
    /// The partner sent a callback.
    Callback,
    /// The partner answered a poll.
    Proactive,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfferBody {
    pub event: MessageEvent,
    pub offer_id: OfferId,
    pub order_id: OrderId,
    pub driver_id: DriverId,
    pub service_type: ServiceType,
    pub attempt_no: i32,
    /// Distance in whole metres.
    pub distance_m: f64,
    pub expires_at: DateTime<Utc>,
}

/// Message to a driver who was assigned an order, or lost it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignmentBody {
    pub event: MessageEvent,
    pub order_id: OrderId,
    pub driver_id: DriverId,
    pub service_type: ServiceType,
    pub reason: String,
    pub timestamp: DateTime<Utc>,
}

/// Message to the driver of an order whose contents changed. It does not contain them: the driver's app reads the order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateBody {
    pub event: MessageEvent,
    pub order_id: OrderId,
    pub driver_id: DriverId,
    pub service_type: ServiceType,
    /// Names of the changed members of the order.
    pub changed: Vec<String>,
    pub timestamp: DateTime<Utc>,
}

/// Alert to dispatchers: no driver is left to ask.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer_id: Option<String>,
    #[serde(flatten)]
    pub addressee: Addressee,
}

/// Alert to dispatchers: a scheduled order has no driver shortly before its pickup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledAlertBody {
    pub event: MessageEvent,
    pub alert_type: MessageKind,
    pub order_id: OrderId,
    pub service_type: ServiceType,
    pub area_id: Option<AreaId>,
    pub status: OrderStatus,
    pub pickup_at: DateTime<Utc>,
    pub attempts: i32,
    pub lifetime_deadline: DateTime<Utc>,
    pub action: String,
    pub timestamp: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customer_id: Option<String>,
    #[serde(flatten)]
    pub addressee: Addressee,
}

/// Reason why an order ended, for its customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelCause {
    /// No driver accepted in time.
    NoDriver,
    /// The partner returned no job id, or lost the booking.
    NotConfirmed,
    /// The driver returned the order too late to find another driver.
    DriverLeft,
    ByStaff,
    /// The order was paid after it had ended.
    PaidLate,
    /// A cause that a newer version wrote.
    #[serde(other)]
    Other,
}

impl CancelCause {
    pub const ALL: [Self; 6] =
        [Self::NoDriver, Self::NotConfirmed, Self::DriverLeft, Self::ByStaff, Self::PaidLate, Self::Other];
}

/// Message to the customer of a cancelled order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomerBody {
    pub event: MessageEvent,
    pub order_id: OrderId,
    pub customer_id: Option<String>,
    pub status: OrderStatus,
    /// Sentence in the customer's language.
    pub reason: String,
    /// Whether the customer gets money back.
    pub refund: bool,
    pub timestamp: DateTime<Utc>,
    /// Cause, for programs. This field and the fields below are absent until the message is rendered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<CancelCause>,
    /// BCP 47 tag. Before rendering: the language that the order requested. After it: the language of the texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Full text for the customer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Event to the producer: a paid order was cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaidCancelBody {
    pub event: MessageEvent,
    pub order_id: OrderId,
    pub status: OrderStatus,
    pub payment_status: PaymentStatus,
    /// Number of requests to partners for a job id, over all bookings of the order; 0 for your own fleet.
    pub total_attempts: i32,
    pub action: MessageKind,
    pub timestamp: DateTime<Utc>,
}

/// Event to the producer: a partner's job id is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobIdBody {
    pub order_id: OrderId,
    pub job_id: String,
    pub attempts: u32,
    /// Duration in the syntax of Go's `time.ParseDuration`.
    pub duration: String,
    pub method: RetrievalMethod,
    /// Present only in webhooks to subscribers. The body in the requirement document does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<DateTime<Utc>>,
}

/// Request to submit an OTP for the open transaction of a binding. It never contains an OTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtpWantedBody {
    pub event: MessageEvent,
    pub binding_id: BindingId,
    pub server_id: ServerId,
    pub account_id: AccountId,
    pub trx_id: TrxId,
    /// Number of the request, from 1. Above 1: the previous OTP is used up.
    pub ask: i32,
    /// Time until which an OTP is accepted.
    pub deadline: DateTime<Utc>,
    pub timestamp: DateTime<Utc>,
}

/// Alert: a transaction of a binding was not final in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnresolvedBody {
    pub event: MessageEvent,
    pub binding_id: BindingId,
    pub server_id: ServerId,
    pub account_id: AccountId,
    pub trx_id: TrxId,
    /// Time by which the transaction should have been final.
    pub deadline: DateTime<Utc>,
    pub timestamp: DateTime<Utc>,
}

/// Event to the producer: its order took a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepBody {
    pub event: OrderStep,
    /// Version of the event format.
    pub version: u16,
    /// Sequence number; increases with each step of an order.
    pub seq: i64,
    pub order_id: OrderId,
    pub status: OrderStatus,
    /// State before the step; `None` for the creation.
    pub previous_status: Option<OrderStatus>,
    pub reason: EventReason,
    pub attempt_no: Option<i32>,
    pub driver_id: Option<DriverId>,
    /// Names of the changed members of the order; only for changes of its contents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// Whether the order has contents. They are added when the message is sent, so that no message stores them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_contents: bool,
    pub timestamp: DateTime<Utc>,
}

impl MessageBody {
    /// Returns the kind as rows and channels store it.
    pub fn kind(&self) -> &str {
        match self {
            Self::Offer(_) => OFFER,
            Self::Assigned(_) => ASSIGNED,
            Self::Unassigned(_) => UNASSIGNED,
            Self::Updated(_) => UPDATED,
            Self::DispatchFailed(_) => DISPATCH_FAILED,
            Self::Reminder(_) => REMINDER,
            Self::ManualRefundRequired(_) => MANUAL_REFUND_REQUIRED,
            Self::UnexpectedState(_) => UNEXPECTED_STATE,
            Self::TimerDead(_) => TIMER_DEAD,
            Self::StaleTrip(_) => STALE_TRIP,
            Self::ScheduledWithoutDriver(_) => SCHEDULED_WITHOUT_DRIVER,
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

    /// Returns the JSON that rows store and receivers get.
    pub fn to_payload(&self) -> Value {
        serde_json::to_value(self).expect("a body has text keys and finite depth")
    }

    /// Returns the id of the order or binding as text; empty if this version cannot find it.
    pub fn subject_id(&self) -> Cow<'_, str> {
        match self {
            Self::Offer(body) => body.order_id.as_str().into(),
            Self::Assigned(body) | Self::Unassigned(body) => body.order_id.as_str().into(),
            Self::Updated(body) => body.order_id.as_str().into(),
            Self::DispatchFailed(body) => body.order_id.as_str().into(),
            Self::ScheduledWithoutDriver(body) => body.order_id.as_str().into(),
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

    /// Returns the time of the message. `None` for offers, which only contain their end, and for unknown contents.
    pub fn told_at(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Assigned(body) | Self::Unassigned(body) => Some(body.timestamp),
            Self::Updated(body) => Some(body.timestamp),
            Self::DispatchFailed(body) => Some(body.timestamp),
            Self::ScheduledWithoutDriver(body) => Some(body.timestamp),
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

    pub fn is_urgent(&self) -> bool {
        match self {
            Self::Reminder(body) | Self::Escalation(body) => body.severity == AlertSeverity::High,
            Self::SlaWarning(body) => body.repeated.severity == AlertSeverity::High,
            Self::Unknown(stored) => stored.payload.get("severity").is_some(),
            alert => alert.alert_head().is_some_and(|head| head.severity == AlertSeverity::High),
        }
    }

    /// Returns the common fields of an alert to support.
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

/// Returns the value on one line; `None` for null.
pub(super) fn show_field(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(show_text(text)),
        other => Some(other.to_string()),
    }
}

/// Returns the text on one line. Unsafe characters become blanks.
pub(super) fn show_text(text: &str) -> String {
    text.replace(crate::plain_text::is_unsafe, " ")
}
