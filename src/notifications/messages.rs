//! The messages, as values. Bodies of support alerts follow the requirement document on job id retrieval
//! (`support.manual_action_required`).

use chrono::{DateTime, TimeDelta, Utc};
use jobs::OrderId;
use serde_json::{Value, json};

use crate::orders::{Offer, Order};

/// How long an undeliverable alert is tried before it is given up.
const ALERT_PATIENCE: TimeDelta = TimeDelta::hours(24);

/// Whom a message is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// The driver named in the message.
    Driver,
    /// Every user with the role dispatcher, each by the own channel.
    Dispatchers,
    /// The supporting reservation team.
    Support,
}

/// A message not yet routed: one outbox row for each channel that reaches its audience.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub kind: &'static str,
    pub audience: Audience,
    /// Two messages of one order, kind and channel with the same key are one.
    pub dedupe_key: String,
    pub payload: Value,
    pub expires_at: DateTime<Utc>,
}

pub const OFFER: &str = "OFFER";
pub const DISPATCH_FAILED: &str = "DISPATCH_FAILED";
pub const MANUAL_REFUND_REQUIRED: &str = "MANUAL_REFUND_REQUIRED";
pub const UNEXPECTED_STATE: &str = "UNEXPECTED_STATE";
pub const TIMER_DEAD: &str = "TIMER_DEAD";
pub const PARTNER_REFUSES_KEY: &str = "PARTNER_REFUSES_KEY";
pub const FAILED_TO_GET_ORDER: &str = "FAILED_TO_GET_ORDER";

/// To a driver: take this order? Worthless once the offer has expired.
pub fn offer(order: &Order, offer: &Offer, distance_m: f64) -> Message {
    Message {
        kind: OFFER,
        audience: Audience::Driver,
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

/// To every dispatcher: nobody is left to ask.
pub fn dispatch_failed(order: &Order, now: DateTime<Utc>) -> Message {
    Message {
        kind: DISPATCH_FAILED,
        audience: Audience::Dispatchers,
        dedupe_key: format!("round-{}", order.round),
        payload: json!({
            "event": "dispatcher.action_required",
            "order_id": order.id,
            "service_type": order.service_type,
            "area_id": order.area_id,
            "attempts": order.attempt_no,
            "lifetime_deadline": order.lifetime_deadline,
            "action": "assign a driver, redispatch or cancel",
            "timestamp": now,
        }),
        expires_at: now + ALERT_PATIENCE,
    }
}

/// To support: the customer paid for an order that will not be carried out.
pub fn refund_required(order: &Order, why: &str, now: DateTime<Utc>) -> Message {
    support(MANUAL_REFUND_REQUIRED, order, String::new(), why, now)
}

/// To support: the payment is in a state the rules do not know; nothing was decided.
pub fn unexpected_state(order: &Order, why: &str, now: DateTime<Utc>) -> Message {
    support(UNEXPECTED_STATE, order, each_time(order), why, now)
}

/// To support: a timer of this order died, so nothing moves it on any more.
pub fn timer_dead(order: &Order, why: &str, now: DateTime<Utc>) -> Message {
    support(TIMER_DEAD, order, each_time(order), why, now)
}

/// To support: an order that was to be compensated is not in the database.
pub fn order_missing(order: &OrderId, now: DateTime<Utc>) -> Message {
    Message {
        kind: FAILED_TO_GET_ORDER,
        audience: Audience::Support,
        dedupe_key: String::new(),
        payload: json!({
            "event": "support.manual_action_required",
            "order_id": order,
            "alert_type": FAILED_TO_GET_ORDER,
            "severity": "high",
            "team": "supporting_reservation",
            "timestamp": now,
        }),
        expires_at: now + ALERT_PATIENCE,
    }
}

/// To support: a partner refuses our key, so nothing is booked there. `order` is the one that found out.
pub fn partner_refuses_key(partner: &str, order: &OrderId, error: &str, now: DateTime<Utc>) -> Message {
    Message {
        kind: PARTNER_REFUSES_KEY,
        audience: Audience::Support,
        dedupe_key: format!("{partner}-{}", now.timestamp()),
        payload: json!({
            "event": "support.manual_action_required",
            "order_id": order,
            "alert_type": PARTNER_REFUSES_KEY,
            "severity": "high",
            "team": "supporting_reservation",
            "partner": partner,
            "error": error,
            "timestamp": now,
        }),
        expires_at: now + ALERT_PATIENCE,
    }
}

/// Told again whenever it happens again.
fn each_time(order: &Order) -> String {
    format!("version-{}", order.version)
}

fn support(kind: &'static str, order: &Order, dedupe_key: String, why: &str, now: DateTime<Utc>) -> Message {
    Message {
        kind,
        audience: Audience::Support,
        dedupe_key,
        payload: json!({
            "event": "support.manual_action_required",
            "order_id": order.id,
            "alert_type": kind,
            "severity": "high",
            "team": "supporting_reservation",
            "status": order.status,
            "reason": why,
            "payment_status": order.payment_status,
            "payment_amount_minor": order.amount_minor,
            "payment_currency": order.currency,
            "total_attempts": order.attempt_no,
            "timestamp": now,
        }),
        expires_at: now + ALERT_PATIENCE,
    }
}
