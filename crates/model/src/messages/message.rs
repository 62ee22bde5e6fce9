//! Messages as values: alerts for support and dispatchers, offers for drivers, events for the producer, messages for
//! the customer.
//!
//! Names and fields of `support.manual_action_required`, `order.cancelled_after_payment_no_job_id` and
//! `order.job_id_retrieved` come from the requirement document on job id retrieval. Alerts have additional fields for
//! the person who handles them. [`super::text`] renders them as text.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use jobs::OrderId;

use super::{
    addressee::Addressee,
    body::{
        ActionHead, AlertSeverity, AlertTeam, AssignmentBody, DispatchFailedBody, FailedUpdateBody, JobIdBody,
        MessageBody, MessageEvent, OfferBody, OrderAlertBody, PaidCancelBody, RefusedKeyBody, RetrievalMethod,
        ScheduledAlertBody, StaleTripBody, StepBody, StoredMessage, UpdateBody,
    },
    kind::MessageKind,
};
use crate::{
    ids::{DriverId, PartnerName, ServiceType},
    order::{Offer, Order, PaymentStatus},
    texts::TextCatalog,
};

/// Time after which delivery of a message is abandoned.
pub const MESSAGE_EXPIRY: TimeDelta = TimeDelta::hours(24);

/// Version of the format of step events. Fields may be added within a version; any other change raises it.
pub const STEP_VERSION: u16 = 1;

/// Maximum length of an error text in a message for people.
const MAX_ERROR_CHARS: usize = 500;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageAudience {
    /// The driver named in the message.
    Driver {
        service_type: ServiceType,
    },
    /// Every user with the role dispatcher, each by their own channel.
    Dispatchers,
    /// The supporting reservation team.
    Support,
    /// People notified when an alert is not acknowledged.
    Escalation,
    Producer,
    /// Endpoints of a producer that subscribe to the event, by their channels.
    Subscriber {
        channels: Vec<String>,
    },
    /// The customer named in the message.
    Customer,
    /// People who submit the OTPs that providers request.
    OtpDesk,
    /// People who resolve transactions that a provider leaves open.
    UnresolvedDesk,
}

/// A message before routing. It becomes one outbox row per channel of its audience.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub body: MessageBody,
    pub audience: MessageAudience,
    /// Deduplication key. Messages about the same order or binding with the same kind, channel and key are stored once.
    pub dedupe_key: String,
    pub expires_at: DateTime<Utc>,
}

impl Message {
    pub(super) fn new(body: MessageBody, audience: MessageAudience, dedupe_key: String, at: DateTime<Utc>) -> Self {
        Self { body, audience, dedupe_key, expires_at: at + MESSAGE_EXPIRY }
    }

    /// Returns the message for the endpoints of a subscriber, with its time.
    pub(crate) fn for_subscriber(&self, channels: Vec<String>, at: DateTime<Utc>) -> Self {
        let mut copy = self.clone();
        copy.audience = MessageAudience::Subscriber { channels };
        if let MessageBody::JobIdRetrieved(body) = &mut copy.body {
            body.timestamp = Some(at);
        }
        copy
    }

    fn to_support(body: MessageBody, dedupe_key: String, at: DateTime<Utc>) -> Self {
        Self::new(body, MessageAudience::Support, dedupe_key, at)
    }

    /// Returns the kind as rows store it.
    pub fn kind(&self) -> &str {
        self.body.kind()
    }

    /// Returns the message as rows store it.
    pub fn to_stored(&self) -> StoredMessage {
        StoredMessage { kind: self.kind().to_owned(), payload: self.body.to_payload() }
    }

    /// Returns the message as rows store it. A message to a customer is rendered with these texts.
    pub fn to_stored_in(&self, texts: &TextCatalog) -> StoredMessage {
        match &self.body {
            MessageBody::OrderCancelled(news) => {
                let news = MessageBody::OrderCancelled(news.put_into_words(texts));
                StoredMessage { kind: self.kind().to_owned(), payload: news.to_payload() }
            }
            _ => self.to_stored(),
        }
    }

    /// Returns whether a person must acknowledge the message.
    pub fn is_alert(&self) -> bool {
        matches!(
            self.audience,
            MessageAudience::Support | MessageAudience::Dispatchers | MessageAudience::UnresolvedDesk
        ) && !matches!(self.body, MessageBody::Reminder(_) | MessageBody::SlaWarning(_))
    }
}

/// Builds an offer to a driver. It is useless after the offer has expired.
pub fn offer_created(order: &Order, offer: &Offer, distance_m: f64) -> Message {
    let body = OfferBody {
        event: MessageEvent::OfferCreated,
        offer_id: offer.id,
        order_id: order.id.clone(),
        driver_id: offer.driver_id.clone(),
        service_type: order.service_type.clone(),
        attempt_no: offer.attempt_no,
        distance_m: distance_m.round(),
        expires_at: offer.expires_at,
    };
    Message {
        body: MessageBody::Offer(body),
        audience: MessageAudience::Driver { service_type: order.service_type.clone() },
        dedupe_key: offer.id.to_string(),
        expires_at: offer.expires_at,
    }
}

/// Builds the message to a driver whom a dispatcher assigned to this order.
pub fn driver_assigned(order: &Order, driver: &DriverId, now: DateTime<Utc>) -> Message {
    let body = assignment_body(MessageEvent::OrderAssigned, order, driver, "assigned by a dispatcher", now);
    to_driver(MessageBody::Assigned(body), order, driver, now)
}

/// Builds the message to a driver who lost this order.
pub fn driver_unassigned(order: &Order, driver: &DriverId, why: &str, now: DateTime<Utc>) -> Message {
    let body = assignment_body(MessageEvent::OrderUnassigned, order, driver, why, now);
    to_driver(MessageBody::Unassigned(body), order, driver, now)
}

/// Builds the message to the driver of this order that its contents changed.
pub fn order_updated(order: &Order, driver: &DriverId, changed: &[&str], now: DateTime<Utc>) -> Message {
    let body = UpdateBody {
        event: MessageEvent::OrderUpdated,
        order_id: order.id.clone(),
        driver_id: driver.clone(),
        service_type: order.service_type.clone(),
        changed: changed.iter().map(|&name| name.to_owned()).collect(),
        timestamp: now,
    };
    to_driver(MessageBody::Updated(body), order, driver, now)
}

fn assignment_body(
    event: MessageEvent,
    order: &Order,
    driver: &DriverId,
    why: &str,
    timestamp: DateTime<Utc>,
) -> AssignmentBody {
    AssignmentBody {
        event,
        order_id: order.id.clone(),
        driver_id: driver.clone(),
        service_type: order.service_type.clone(),
        reason: why.to_owned(),
        timestamp,
    }
}

fn to_driver(body: MessageBody, order: &Order, driver: &DriverId, now: DateTime<Utc>) -> Message {
    let audience = MessageAudience::Driver { service_type: order.service_type.clone() };
    Message::new(body, audience, format!("{driver}-{}", order.version), now)
}

/// Builds the alert to every dispatcher that no driver is left to ask.
pub fn dispatch_failed(order: &Order, now: DateTime<Utc>) -> Message {
    let body = DispatchFailedBody {
        event: MessageEvent::DispatcherActionRequired,
        order_id: order.id.clone(),
        service_type: order.service_type.clone(),
        area_id: order.area_id.clone(),
        attempts: order.attempt_no,
        lifetime_deadline: order.lifetime_deadline,
        action: "assign a driver, redispatch or cancel".to_owned(),
        timestamp: now,
        customer_id: order.customer_id.clone(),
        addressee: Addressee::default(),
    };
    let dedupe_key = format!("round-{}", order.round);
    Message::new(MessageBody::DispatchFailed(body), MessageAudience::Dispatchers, dedupe_key, now)
}

/// Builds the alert to every dispatcher that a scheduled order has no driver shortly before its pickup.
pub fn scheduled_without_driver(order: &Order, pickup_at: DateTime<Utc>, now: DateTime<Utc>) -> Message {
    let body = ScheduledAlertBody {
        event: MessageEvent::DispatcherActionRequired,
        alert_type: MessageKind::ScheduledWithoutDriver,
        order_id: order.id.clone(),
        service_type: order.service_type.clone(),
        area_id: order.area_id.clone(),
        status: order.status,
        pickup_at,
        attempts: order.attempt_no,
        lifetime_deadline: order.lifetime_deadline,
        action: "find a driver, move the pickup or cancel".to_owned(),
        timestamp: now,
        customer_id: order.customer_id.clone(),
        addressee: Addressee::default(),
    };
    // A moved pickup is warned of again.
    let dedupe_key = format!("pickup-{}", pickup_at.timestamp_millis());
    Message::new(MessageBody::ScheduledWithoutDriver(body), MessageAudience::Dispatchers, dedupe_key, now)
}

/// Builds the alert to support that a paid order ended without a ride.
pub fn refund_required(order: &Order, why: &str, now: DateTime<Utc>) -> Message {
    let word = &order.payment_status;
    let is_unclear = matches!(word, PaymentStatus::Other(_) | PaymentStatus::Refunded);
    let why = if is_unclear { format!("{why}; it was paid, and its payment is {word} now") } else { why.to_owned() };
    let alert = order_alert(MessageKind::ManualRefundRequired, order, &why, now);
    Message::to_support(MessageBody::ManualRefundRequired(alert), String::new(), now)
}

/// Builds the alert to support that the rules do not know the payment status. Nothing was decided.
pub fn unexpected_state(order: &Order, why: &str, now: DateTime<Utc>) -> Message {
    let alert = order_alert(MessageKind::UnexpectedState, order, why, now);
    Message::to_support(MessageBody::UnexpectedState(alert), version_key(order), now)
}

/// Topic of an alert to support about the money of an order. Each topic alerts once per order, however many words
/// follow, because support checks the payment and not the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaymentTopic {
    /// Unknown word on an open order.
    UnknownWord,
    /// Unknown word on an ended order.
    UnknownAtEnd,
    /// The producer reports that the money was returned.
    ReportedRefund,
    /// The producer reports a payment after the refund.
    PaidAfterRefund,
    /// A callback names a refund id that the payment service did not return.
    OtherRefund,
    /// The payment service reports a result that contradicts how the refund was settled.
    SettledRefund,
}

impl PaymentTopic {
    fn dedupe_key(self) -> &'static str {
        match self {
            Self::UnknownWord => "payment-word",
            Self::UnknownAtEnd => "payment",
            Self::ReportedRefund => "payment-refunded",
            Self::PaidAfterRefund => "paid-after-refund",
            Self::OtherRefund => "other-refund",
            Self::SettledRefund => "settled-refund",
        }
    }
}

/// Builds the alert to support that a person must check the money of this order.
pub fn payment_alert(order: &Order, topic: PaymentTopic, why: &str, now: DateTime<Utc>) -> Message {
    let alert = order_alert(MessageKind::UnexpectedState, order, why, now);
    Message::to_support(MessageBody::UnexpectedState(alert), topic.dedupe_key().to_owned(), now)
}

/// Builds the alert to support that a timer of this order is dead, so the order is stuck.
pub fn timer_dead(order: &Order, why: &str, now: DateTime<Utc>) -> Message {
    let alert = order_alert(MessageKind::TimerDead, order, why, now);
    Message::to_support(MessageBody::TimerDead(alert), version_key(order), now)
}

/// Builds the alert to support that the driver has not picked up, or not completed the trip, in time.
pub fn stale_trip(order: &Order, why: &str, now: DateTime<Utc>) -> Message {
    let alert = order_alert(MessageKind::StaleTrip, order, why, now);
    let body = StaleTripBody { alert, driver_id: order.driver_id.clone() };
    Message::to_support(MessageBody::StaleTrip(body), version_key(order), now)
}

/// Builds the alert to support that an order to be compensated is missing in the database.
pub fn order_missing(order: &OrderId, now: DateTime<Utc>) -> Message {
    let head = action_head(MessageKind::FailedToGetOrder, order, now);
    Message::to_support(MessageBody::FailedToGetOrder(head), String::new(), now)
}

/// Builds the alert to support that the end of this order could not be written because of this error.
pub fn status_update_failed(order: &OrderId, error: &str, now: DateTime<Utc>) -> Message {
    let body = FailedUpdateBody {
        head: action_head(MessageKind::StatusUpdateFailed, order, now),
        error: error.chars().take(MAX_ERROR_CHARS).collect(),
    };
    Message::to_support(MessageBody::StatusUpdateFailed(body), String::new(), now)
}

/// Builds the event to the producer that the system ended a paid order. Fleet orders use the requirement's event name
/// too, although they never have a job id.
pub fn cancelled_after_payment(order: &Order, now: DateTime<Utc>) -> Message {
    let body = PaidCancelBody {
        event: MessageEvent::CancelledAfterPayment,
        order_id: order.id.clone(),
        status: order.status,
        payment_status: order.payment_status.clone(),
        total_attempts: order.job_id_asks,
        action: MessageKind::ManualRefundRequired,
        timestamp: now,
    };
    Message::new(MessageBody::CancelledAfterPayment(body), MessageAudience::Producer, String::new(), now)
}

/// Builds the event to the producer that the partner's job id is known. `duration` is the time since the booking.
pub fn job_id_retrieved(
    order: &OrderId,
    job_id: &str,
    attempts: u32,
    duration: Duration,
    method: RetrievalMethod,
    now: DateTime<Utc>,
) -> Message {
    let duration = Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    let body = JobIdBody {
        order_id: order.clone(),
        job_id: job_id.to_owned(),
        attempts,
        duration: format!("{duration:?}"),
        method,
        timestamp: None,
    };
    Message::new(MessageBody::JobIdRetrieved(body), MessageAudience::Producer, job_id.to_owned(), now)
}

/// Builds the event that an order took this step, for the endpoints with these channels.
pub fn order_step(channels: Vec<String>, body: StepBody) -> Message {
    let (dedupe_key, at) = (body.seq.to_string(), body.timestamp);
    Message::new(MessageBody::Step(body), MessageAudience::Subscriber { channels }, dedupe_key, at)
}

/// Builds the alert to support that a partner refuses our key, so that no booking succeeds there. `order` is the order
/// whose request failed.
pub fn partner_refuses_key(partner: &PartnerName, order: &OrderId, error: &str, now: DateTime<Utc>) -> Message {
    let body = RefusedKeyBody {
        head: action_head(MessageKind::PartnerRefusesKey, order, now),
        partner: partner.clone(),
        error: error.to_owned(),
    };
    Message::to_support(MessageBody::PartnerRefusesKey(body), format!("{partner}-{}", now.timestamp()), now)
}

/// Returns a key that allows the message again after the order changes.
fn version_key(order: &Order) -> String {
    format!("version-{}", order.version)
}

fn order_alert(kind: MessageKind, order: &Order, why: &str, now: DateTime<Utc>) -> OrderAlertBody {
    OrderAlertBody {
        head: action_head(kind, &order.id, now),
        status: order.status,
        reason: why.to_owned(),
        payment_status: order.payment_status.clone(),
        payment_amount_minor: order.amount_minor,
        payment_currency: order.currency.clone(),
        total_attempts: order.job_id_asks,
        customer_id: order.customer_id.clone(),
    }
}

fn action_head(kind: MessageKind, order: &OrderId, timestamp: DateTime<Utc>) -> ActionHead {
    ActionHead {
        event: MessageEvent::ManualActionRequired,
        order_id: order.clone(),
        alert_type: kind,
        severity: AlertSeverity::High,
        team: AlertTeam::SupportingReservation,
        timestamp,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        messages::{
            CANCELLED_AFTER_PAYMENT, CancelCause, MANUAL_REFUND_REQUIRED, ORDER_CANCELLED, RepeatedAlert,
            alert_escalation, cancelled_by_system, customer_cancelled, dispatcher_reminder, sla_warning,
        },
        order::{OrderStatus, order::fixture},
    };

    fn fields(message: &Message) -> Vec<String> {
        message.body.to_payload().as_object().unwrap().keys().cloned().collect()
    }

    #[test]
    fn events_have_exactly_the_required_fields() {
        let s = fixture::created_snapshot();
        let order = &s.order;
        let retrieved =
            job_id_retrieved(&order.id, "J-1", 4, Duration::from_micros(90_500_700), RetrievalMethod::Proactive, s.now);
        assert_eq!(fields(&retrieved), ["order_id", "job_id", "attempts", "duration", "method"]);
        assert_eq!(
            (&retrieved.body.to_payload()["duration"], &retrieved.body.to_payload()["method"]),
            (&json!("90.5s"), &json!("proactive"))
        );
        let cancelled = cancelled_after_payment(order, s.now);
        let expected = ["event", "order_id", "status", "payment_status", "total_attempts", "action", "timestamp"];
        assert_eq!(fields(&cancelled), expected);
        assert_eq!(cancelled.body.to_payload()["timestamp"], json!("2027-01-15T08:00:00Z"));
        let failed = status_update_failed(&order.id, &"x".repeat(9_000), s.now);
        let expected = ["event", "order_id", "alert_type", "severity", "team", "timestamp", "error"];
        assert_eq!(fields(&failed), expected);
        assert_eq!(failed.body.to_payload()["error"].as_str().unwrap().len(), MAX_ERROR_CHARS);
    }

    #[test]
    fn only_actionable_messages_are_alerts() {
        let s = fixture::created_snapshot();
        let repeated = RepeatedAlert {
            alert_id: 7,
            order_id: &s.order.id,
            kind: MANUAL_REFUND_REQUIRED,
            raised_at: s.now,
            number: 1,
            told: &json!({}),
        };
        let alerts = [
            refund_required(&s.order, "", s.now),
            unexpected_state(&s.order, "", s.now),
            timer_dead(&s.order, "", s.now),
            stale_trip(&s.order, "", s.now),
            dispatch_failed(&s.order, s.now),
            order_missing(&s.order.id, s.now),
            status_update_failed(&s.order.id, "", s.now),
        ];
        assert!(alerts.iter().all(Message::is_alert));
        let others = [
            dispatcher_reminder(&repeated, s.now),
            sla_warning(&repeated, s.now, s.now),
            alert_escalation(&repeated, s.now),
            cancelled_after_payment(&s.order, s.now),
            customer_cancelled(&s.order, CancelCause::NoDriver, s.now),
        ];
        assert!(!others.iter().any(Message::is_alert));
    }

    #[test]
    fn ended_order_messages_depend_on_payment() {
        let told = |payment: &str, status| {
            let mut s = fixture::created_snapshot();
            s.order.payment_status = payment.to_owned().try_into().unwrap();
            s.order.status = status;
            let told = cancelled_by_system(&s.order, "why", CancelCause::NoDriver, s.now);
            told.iter().map(|m| m.kind().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(told("UNPAID", OrderStatus::CancelledBySystem), [ORDER_CANCELLED]);
        let paid = told("SETTLEMENT", OrderStatus::CancelledBySystemAfterPayment);
        assert_eq!(paid, [MANUAL_REFUND_REQUIRED, CANCELLED_AFTER_PAYMENT, ORDER_CANCELLED]);
    }
}
