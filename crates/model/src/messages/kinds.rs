//! The messages, as values: alerts for support and dispatchers, offers for drivers, events for the producer, news for the
//! customer.
//!
//! Names and fields of `support.manual_action_required`, `order.cancelled_after_payment_no_job_id` and
//! `order.job_id_retrieved` are those of the requirement document on job id retrieval. Alerts carry more beside them:
//! what a person who acts on them wants to read. How they read as text is in [`super::text`].

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use jobs::OrderId;
use serde_json::{Value, json};

use crate::order::{Offer, Order};

/// How long an undeliverable message is tried before it is given up.
pub const MESSAGE_EXPIRY: TimeDelta = TimeDelta::hours(24);

/// Errors are shown to people, who read this much.
const MAX_ERROR_CHARS: usize = 500;

/// Whom a message is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageAudience {
    /// The driver named in the message.
    Driver { service_type: String },
    /// Every user with the role dispatcher, each by the own channel.
    Dispatchers,
    /// The supporting reservation team.
    Support,
    /// The people told when an alert is not acknowledged.
    Escalation,
    /// The system that created the order.
    Producer,
    /// The customer named in the message.
    Customer,
}

/// A message not yet routed: one outbox row for each channel that reaches its audience.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub kind: &'static str,
    pub audience: MessageAudience,
    /// Two messages of one order, kind and channel with the same key are one.
    pub dedupe_key: String,
    pub payload: Value,
    pub expires_at: DateTime<Utc>,
}

impl Message {
    fn new(
        kind: &'static str,
        audience: MessageAudience,
        dedupe_key: String,
        payload: Value,
        at: DateTime<Utc>,
    ) -> Self {
        Self { kind, audience, dedupe_key, payload, expires_at: at + MESSAGE_EXPIRY }
    }

    /// Must a person acknowledge it?
    pub fn is_alert(&self) -> bool {
        matches!(self.audience, MessageAudience::Support | MessageAudience::Dispatchers) && self.kind != REMINDER
    }
}

pub const OFFER: &str = "OFFER";
pub const ASSIGNED: &str = "ASSIGNED";
pub const UNASSIGNED: &str = "UNASSIGNED";
pub const DISPATCH_FAILED: &str = "DISPATCH_FAILED";
pub const REMINDER: &str = "REMINDER";
pub const MANUAL_REFUND_REQUIRED: &str = "MANUAL_REFUND_REQUIRED";
pub const UNEXPECTED_STATE: &str = "UNEXPECTED_STATE";
pub const TIMER_DEAD: &str = "TIMER_DEAD";
pub const STALE_TRIP: &str = "STALE_TRIP";
pub const PARTNER_REFUSES_KEY: &str = "PARTNER_REFUSES_KEY";
pub const FAILED_TO_GET_ORDER: &str = "FAILED_TO_GET_ORDER";
pub const STATUS_UPDATE_FAILED: &str = "STATUS_UPDATE_FAILED";
pub const ESCALATION: &str = "ESCALATION";
pub const ORDER_CANCELLED: &str = "ORDER_CANCELLED";
pub const JOB_ID_RETRIEVED: &str = "order.job_id_retrieved";
pub const CANCELLED_AFTER_PAYMENT: &str = "order.cancelled_after_payment_no_job_id";

/// Is an alert of this kind for dispatchers, and so told again by reminders?
pub fn is_for_dispatchers(kind: &str) -> bool {
    kind == DISPATCH_FAILED
}

/// How a partner's job id came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RetrievalMethod {
    /// The partner called back.
    Callback,
    /// We asked.
    Proactive,
}

/// To a driver: take this order? Worthless once the offer has expired.
pub fn offer_created(order: &Order, offer: &Offer, distance_m: f64) -> Message {
    Message {
        kind: OFFER,
        audience: MessageAudience::Driver { service_type: order.service_type.clone() },
        dedupe_key: offer.id.to_string(),
        payload: json!({
            "event": "offer.created",
            "offer_id": offer.id,
            "order_id": order.id,
            "driver_id": offer.driver_id,
            "service_type": order.service_type,
            "attempt_no": offer.attempt_no,
            "distance_m": distance_m.round(),
            "expires_at": offer.expires_at,
        }),
        expires_at: offer.expires_at,
    }
}

/// To a driver: a dispatcher has given you this order.
pub fn driver_assigned(order: &Order, driver: &str, now: DateTime<Utc>) -> Message {
    to_driver(ASSIGNED, "order.assigned", order, driver, "assigned by a dispatcher", now)
}

/// To a driver: this order is no longer yours.
pub fn driver_unassigned(order: &Order, driver: &str, why: &str, now: DateTime<Utc>) -> Message {
    to_driver(UNASSIGNED, "order.unassigned", order, driver, why, now)
}

fn to_driver(kind: &'static str, event: &str, order: &Order, driver: &str, why: &str, now: DateTime<Utc>) -> Message {
    let payload = json!({
        "event": event,
        "order_id": order.id,
        "driver_id": driver,
        "service_type": order.service_type,
        "reason": why,
        "timestamp": now,
    });
    let audience = MessageAudience::Driver { service_type: order.service_type.clone() };
    Message::new(kind, audience, format!("{driver}-{}", order.version), payload, now)
}

/// To every dispatcher: no driver is left to ask.
pub fn dispatch_failed(order: &Order, now: DateTime<Utc>) -> Message {
    let payload = json!({
        "event": "dispatcher.action_required",
        "order_id": order.id,
        "service_type": order.service_type,
        "area_id": order.area_id,
        "attempts": order.attempt_no,
        "lifetime_deadline": order.lifetime_deadline,
        "action": "assign a driver, redispatch or cancel",
        "timestamp": now,
    });
    Message::new(DISPATCH_FAILED, MessageAudience::Dispatchers, format!("round-{}", order.round), payload, now)
}

/// To every dispatcher: the order of this alert still waits.
pub fn dispatcher_reminder(alert: &RepeatedAlert, now: DateTime<Utc>) -> Message {
    let payload = alert.build_payload("dispatcher.reminder", REMINDER, now);
    Message::new(REMINDER, MessageAudience::Dispatchers, alert.dedupe_key(), payload, now)
}

/// To the people of the escalation: this alert was not acknowledged.
pub fn alert_escalation(alert: &RepeatedAlert, now: DateTime<Utc>) -> Message {
    let payload = alert.build_payload("support.manual_action_required", ESCALATION, now);
    Message::new(ESCALATION, MessageAudience::Escalation, alert.dedupe_key(), payload, now)
}

/// An alert told about again.
#[derive(Debug, Clone)]
pub struct RepeatedAlert<'a> {
    pub alert_id: i64,
    pub order_id: &'a str,
    pub kind: &'a str,
    pub raised_at: DateTime<Utc>,
    /// From 1.
    pub number: i32,
    /// What was told when it was raised.
    pub told: &'a Value,
}

impl RepeatedAlert<'_> {
    fn dedupe_key(&self) -> String {
        format!("{}-{}", self.alert_id, self.number)
    }

    fn build_payload(&self, event: &str, alert_type: &str, now: DateTime<Utc>) -> Value {
        json!({
            "event": event,
            "order_id": self.order_id,
            "alert_type": alert_type,
            "severity": "high",
            "team": "supporting_reservation",
            "alert_id": self.alert_id,
            "alert_kind": self.kind,
            "number": self.number,
            "raised_at": self.raised_at,
            "alert": self.told,
            "timestamp": now,
        })
    }
}

/// To support: the customer paid for an order that will not be carried out.
pub fn refund_required(order: &Order, why: &str, now: DateTime<Utc>) -> Message {
    support_alert(MANUAL_REFUND_REQUIRED, order, String::new(), why, now)
}

/// To support: the payment is in a state the rules do not know; nothing was decided.
pub fn unexpected_state(order: &Order, why: &str, now: DateTime<Utc>) -> Message {
    support_alert(UNEXPECTED_STATE, order, version_key(order), why, now)
}

/// To support: what the producer says of the money of a cancelled order is a word the rules do not know. Told once of an
/// order, however many such words follow: the desk looks at the payment and not at the word.
pub fn unknown_payment(order: &Order, why: &str, now: DateTime<Utc>) -> Message {
    support_alert(UNEXPECTED_STATE, order, "payment".to_owned(), why, now)
}

/// To support: a timer of this order died, so nothing moves it on any more.
pub fn timer_dead(order: &Order, why: &str, now: DateTime<Utc>) -> Message {
    support_alert(TIMER_DEAD, order, version_key(order), why, now)
}

/// To support: the driver has not picked up, or not completed the trip, in time.
pub fn stale_trip(order: &Order, why: &str, now: DateTime<Utc>) -> Message {
    let mut message = support_alert(STALE_TRIP, order, version_key(order), why, now);
    message.payload["driver_id"] = json!(order.driver_id);
    message
}

/// To support: an order that was to be compensated is not in the database.
pub fn order_missing(order: &OrderId, now: DateTime<Utc>) -> Message {
    let payload = manual_action(FAILED_TO_GET_ORDER, order, now);
    Message::new(FAILED_TO_GET_ORDER, MessageAudience::Support, String::new(), payload, now)
}

/// To support: the end of this order could not be written, for this error.
pub fn status_update_failed(order: &OrderId, error: &str, now: DateTime<Utc>) -> Message {
    let mut payload = manual_action(STATUS_UPDATE_FAILED, order, now);
    payload["error"] = error.chars().take(MAX_ERROR_CHARS).collect::<String>().into();
    Message::new(STATUS_UPDATE_FAILED, MessageAudience::Support, String::new(), payload, now)
}

/// What is told of an order that the system has just ended, by its present status: a paid one needs a refund and is
/// published, and the customer learns of either.
pub fn cancelled_by_system(order: &Order, why: &str, now: DateTime<Utc>) -> Vec<Message> {
    let mut messages = Vec::new();
    if order.payment_status.is_paid() {
        messages.push(refund_required(order, why, now));
        messages.push(cancelled_after_payment(order, now));
    }
    messages.push(customer_cancelled(order, why, now));
    messages
}

/// To the producer: the system ended an order that was paid for. The name is the requirement's, for fleet orders too: a job
/// id would have come from the partner whose driver never did.
pub fn cancelled_after_payment(order: &Order, now: DateTime<Utc>) -> Message {
    let payload = json!({
        "event": CANCELLED_AFTER_PAYMENT,
        "order_id": order.id,
        "status": order.status,
        "payment_status": order.payment_status,
        // Without a job id: how often the partner was asked for it.
        "total_attempts": if order.partner.is_some() && order.job_id.is_none() { order.poll_no } else { order.attempt_no },
        "action": MANUAL_REFUND_REQUIRED,
        "timestamp": now,
    });
    Message::new(CANCELLED_AFTER_PAYMENT, MessageAudience::Producer, String::new(), payload, now)
}

/// To the producer: the partner's job id is known. `duration` is the time since the booking.
pub fn job_id_retrieved(
    order: &OrderId,
    job_id: &str,
    attempts: u32,
    duration: Duration,
    method: RetrievalMethod,
    now: DateTime<Utc>,
) -> Message {
    let payload = json!({
        "order_id": order,
        "job_id": job_id,
        "attempts": attempts,
        // As Go's time.ParseDuration reads it.
        "duration": format!("{:?}", Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))),
        "method": method,
    });
    Message::new(JOB_ID_RETRIEVED, MessageAudience::Producer, job_id.to_owned(), payload, now)
}

/// To the customer: the system ended the order. Told again when it turns out that it was paid.
pub fn customer_cancelled(order: &Order, why: &str, now: DateTime<Utc>) -> Message {
    let payload = json!({
        "event": "customer.order_cancelled",
        "order_id": order.id,
        "customer_id": order.customer_id,
        "status": order.status,
        "reason": why,
        "refund": order.payment_status.is_paid(),
        "timestamp": now,
    });
    Message::new(ORDER_CANCELLED, MessageAudience::Customer, order.status.as_str().to_owned(), payload, now)
}

/// To support: a partner refuses our key, so nothing is booked there. `order` is the one that found out.
pub fn partner_refuses_key(partner: &str, order: &OrderId, error: &str, now: DateTime<Utc>) -> Message {
    let mut payload = manual_action(PARTNER_REFUSES_KEY, order, now);
    payload["partner"] = json!(partner);
    payload["error"] = json!(error);
    Message::new(PARTNER_REFUSES_KEY, MessageAudience::Support, format!("{partner}-{}", now.timestamp()), payload, now)
}

/// Told again whenever it happens again.
fn version_key(order: &Order) -> String {
    format!("version-{}", order.version)
}

fn support_alert(kind: &'static str, order: &Order, dedupe_key: String, why: &str, now: DateTime<Utc>) -> Message {
    let mut payload = manual_action(kind, &order.id, now);
    payload["status"] = json!(order.status);
    payload["reason"] = json!(why);
    payload["payment_status"] = json!(order.payment_status);
    payload["payment_amount_minor"] = json!(order.amount_minor);
    payload["payment_currency"] = json!(order.currency);
    payload["total_attempts"] = json!(order.attempt_no);
    Message::new(kind, MessageAudience::Support, dedupe_key, payload, now)
}

fn manual_action(kind: &str, order: &OrderId, now: DateTime<Utc>) -> Value {
    json!({
        "event": "support.manual_action_required",
        "order_id": order,
        "alert_type": kind,
        "severity": "high",
        "team": "supporting_reservation",
        "timestamp": now,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{OrderStatus, order::fixture};

    fn fields(message: &Message) -> Vec<&str> {
        message.payload.as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn events_have_the_fields_of_the_requirement_and_no_others() {
        let s = fixture::created_snapshot();
        let order = &s.order;
        let retrieved =
            job_id_retrieved(&order.id, "J-1", 4, Duration::from_micros(90_500_700), RetrievalMethod::Proactive, s.now);
        assert_eq!(fields(&retrieved), ["order_id", "job_id", "attempts", "duration", "method"]);
        assert_eq!(
            (&retrieved.payload["duration"], &retrieved.payload["method"]),
            (&json!("90.5s"), &json!("proactive"))
        );
        let cancelled = cancelled_after_payment(order, s.now);
        let expected = ["event", "order_id", "status", "payment_status", "total_attempts", "action", "timestamp"];
        assert_eq!(fields(&cancelled), expected);
        assert_eq!(cancelled.payload["timestamp"], json!("2027-01-15T08:00:00Z"));
        let failed = status_update_failed(&order.id, &"x".repeat(9_000), s.now);
        let expected = ["event", "order_id", "alert_type", "severity", "team", "timestamp", "error"];
        assert_eq!(fields(&failed), expected);
        assert_eq!(failed.payload["error"].as_str().unwrap().len(), MAX_ERROR_CHARS);
    }

    #[test]
    fn only_what_a_person_must_act_on_is_an_alert() {
        let s = fixture::created_snapshot();
        let repeated = RepeatedAlert {
            alert_id: 7,
            order_id: "ORD-1",
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
            alert_escalation(&repeated, s.now),
            cancelled_after_payment(&s.order, s.now),
            customer_cancelled(&s.order, "", s.now),
        ];
        assert!(!others.iter().any(Message::is_alert));
    }

    #[test]
    fn an_order_the_system_ended_is_told_of_by_its_payment() {
        let told = |payment: &str, status| {
            let mut s = fixture::created_snapshot();
            s.order.payment_status = payment.to_owned().try_into().unwrap();
            s.order.status = status;
            cancelled_by_system(&s.order, "why", s.now).iter().map(|m| m.kind).collect::<Vec<_>>()
        };
        assert_eq!(told("UNPAID", OrderStatus::CancelledBySystem), [ORDER_CANCELLED]);
        let paid = told("SETTLEMENT", OrderStatus::CancelledBySystemAfterPayment);
        assert_eq!(paid, [MANUAL_REFUND_REQUIRED, CANCELLED_AFTER_PAYMENT, ORDER_CANCELLED]);
    }
}
