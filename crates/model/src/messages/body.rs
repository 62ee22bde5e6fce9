//! What messages say, as types. Their JSON is what rows keep and receivers get: names and order of fields are fixed.
//!
//! A field that is added later must be optional, for rows of the version before are still read.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use jobs::{BindingId, OrderId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{addressee::Addressee, customer::CustomerBody, kind::*};
use crate::{
    binding::{AccountId, ServerId, TrxId},
    ids::{AreaId, DriverId, OfferId, PartnerName, ServiceType},
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
    /// A row of an older or newer version, which this version cannot read. It is delivered and shown as it is.
    Unknown(StoredMessage),
}

/// A message as its row, or its job, holds it. Receivers get this payload, even where another version wrote more into it
/// than this version reads.
#[derive(Debug, Clone, PartialEq, Serialize, sqlx::FromRow)]
#[serde(into = "Value")]
pub struct StoredMessage {
    pub kind: String,
    pub payload: Value,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertSeverity {
    High,
}

/// The team that an alert is for, as the requirement names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertTeam {
    SupportingReservation,
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

/// An alert told again, because no person acknowledged it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RepeatedAlertBody {
    pub event: MessageEvent,
    pub order_id: OrderId,
    pub alert_type: MessageKind,
    pub severity: AlertSeverity,
    pub team: AlertTeam,
    pub alert_id: i64,
    /// The kind of the alert's row, which another version may have written.
    pub alert_kind: String,
    /// From 1.
    pub number: i32,
    pub raised_at: DateTime<Utc>,
    /// What was told when it was raised.
    pub alert: Value,
    pub timestamp: DateTime<Utc>,
    #[serde(flatten)]
    pub addressee: Addressee,
}

/// The warning that the SLA of an alert is about to end. Its `number` is 0: it counts as no escalation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlaWarningBody {
    #[serde(flatten)]
    pub repeated: RepeatedAlertBody,
    pub sla_ends_at: DateTime<Utc>,
}

/// What every alert to support begins with; the whole of one about an order that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionHead {
    pub event: MessageEvent,
    pub order_id: OrderId,
    pub alert_type: MessageKind,
    pub severity: AlertSeverity,
    pub team: AlertTeam,
    pub timestamp: DateTime<Utc>,
}

/// An alert to support about an order and its money.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderAlertBody {
    #[serde(flatten)]
    pub head: ActionHead,
    pub status: OrderStatus,
    pub reason: String,
    pub payment_status: PaymentStatus,
    pub payment_amount_minor: Option<i64>,
    pub payment_currency: Option<String>,
    /// Times the partner was asked for a job id, over all bookings of the order; 0 of the own fleet.
    pub total_attempts: i32,
    /// Who is to be contacted; absent of orders without a customer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer_id: Option<String>,
}

/// The alert that a trip does not go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleTripBody {
    #[serde(flatten)]
    pub alert: OrderAlertBody,
    pub driver_id: Option<DriverId>,
}

/// The alert that the end of an order could not be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedUpdateBody {
    #[serde(flatten)]
    pub head: ActionHead,
    pub error: String,
}

/// The alert that a partner refuses our key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedKeyBody {
    #[serde(flatten)]
    pub head: ActionHead,
    pub partner: PartnerName,
    pub error: String,
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

impl StoredMessage {
    /// Returns the content as this version reads it. What it cannot read is [`MessageBody::Unknown`], and no error.
    pub fn read_body(&self) -> MessageBody {
        let Some(kind) = MessageKind::from_stored(&self.kind) else { return MessageBody::Unknown(self.clone()) };
        let payload = &self.payload;
        let body = match kind {
            MessageKind::Offer => read_as(payload, MessageBody::Offer),
            MessageKind::Assigned => read_as(payload, MessageBody::Assigned),
            MessageKind::Unassigned => read_as(payload, MessageBody::Unassigned),
            MessageKind::DispatchFailed => read_as(payload, MessageBody::DispatchFailed),
            MessageKind::Reminder => read_as(payload, MessageBody::Reminder),
            MessageKind::ManualRefundRequired => read_as(payload, MessageBody::ManualRefundRequired),
            MessageKind::UnexpectedState => read_as(payload, MessageBody::UnexpectedState),
            MessageKind::TimerDead => read_as(payload, MessageBody::TimerDead),
            MessageKind::StaleTrip => read_as(payload, MessageBody::StaleTrip),
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

    /// The kind, if this version has it.
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

impl RepeatedAlertBody {
    /// Returns the alert as it was raised.
    pub fn told_alert(&self) -> StoredMessage {
        StoredMessage { kind: self.alert_kind.clone(), payload: self.alert.clone() }
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
