//! The JSON of every message, to the letter: receivers, rows and jobs of other versions hold it. And how it reads.

use std::time::Duration;

use super::*;
use crate::order::{OrderStatus, PaymentStatus, Snapshot, order::fixture};

/// An order with a value in every field that a message tells.
fn told_order() -> Snapshot {
    let mut s = fixture::offered_snapshot();
    s.order.area_id = Some("JKT".to_owned());
    s.order.customer_id = Some("C-1".to_owned());
    s.order.driver_id = Some("D1".to_owned());
    s.order.payment_status = PaymentStatus::Paid;
    s.order.version = 3;
    s
}

/// A message of every kind, and of those whose fields may be empty a second one.
fn every_message() -> Vec<Message> {
    let s = told_order();
    let (order, now) = (&s.order, s.now);
    let bare = fixture::created_snapshot().order;
    let mut ended = order.clone();
    ended.status = OrderStatus::CancelledBySystemAfterPayment;
    let told = refund_required(&ended, "why", now);
    let raised = dispatch_failed(order, now);
    let repeated = |alert: &'static str, told| RepeatedAlert {
        alert_id: 7,
        order_id: "ORD-1",
        kind: alert,
        raised_at: now,
        number: 2,
        told,
    };
    vec![
        offer_created(order, &s.offers[0], 1234.56),
        driver_assigned(order, "D1", now),
        driver_unassigned(order, "D1", "why", now),
        dispatch_failed(order, now),
        dispatch_failed(&bare, now),
        dispatcher_reminder(&repeated(DISPATCH_FAILED, &raised.payload), now),
        alert_escalation(&repeated(MANUAL_REFUND_REQUIRED, &told.payload), now),
        told.clone(),
        refund_required(&crate::order::Order { amount_minor: None, currency: None, ..bare.clone() }, "", now),
        refund_required(&crate::order::Order { currency: None, ..bare.clone() }, "", now),
        unexpected_state(order, "why", now),
        unknown_payment(order, "why", now),
        timer_dead(order, "why", now),
        stale_trip(order, "why", now),
        stale_trip(&bare, "why", now),
        order_missing(&order.id, now),
        status_update_failed(&order.id, "no space left", now),
        partner_refuses_key("bbd", &order.id, "401", now),
        cancelled_after_payment(&ended, now),
        job_id_retrieved(&order.id, "J-1", 4, Duration::from_micros(90_500_700), RetrievalMethod::Proactive, now),
        job_id_retrieved(&order.id, "J-1", 0, Duration::ZERO, RetrievalMethod::Callback, now),
        customer_cancelled(order, "why", now),
        customer_cancelled(&bare, "why", now),
    ]
}

#[test]
fn every_message_is_written_to_the_letter() {
    let mut written = String::new();
    for message in every_message() {
        let text = text::render_message(message.kind, &message.payload, Duration::from_secs(24 * 3600));
        written += &format!(
            "== {} to {:?}, once for '{}', until {}\n{}\n-- {}\n{}\n\n",
            message.kind,
            message.audience,
            message.dedupe_key,
            message.expires_at,
            message.payload,
            text.subject,
            text.body
        );
    }
    insta::assert_snapshot!(written);
}
