//! Tests of the exact JSON of every message, which receivers, rows and jobs of other versions contain, and of the
//! rendered text.

use std::time::Duration;

use chrono::TimeDelta;
use serde_json::json;

use super::*;
use crate::{
    order::{OrderStatus, PaymentStatus, Snapshot, order::fixture},
    texts::TextCatalog,
};

/// Returns an order with a value in every field that messages contain.
fn told_order() -> Snapshot {
    let mut s = fixture::offered_snapshot();
    s.order.area_id = Some("JKT".into());
    s.order.customer_id = Some("C-1".to_owned());
    s.order.language = Some("en".parse().unwrap());
    s.order.driver_id = Some("D1".into());
    s.order.payment_status = PaymentStatus::Paid;
    s.order.version = 3;
    s.order.job_id_asks = 1;
    s
}

/// Returns a message of every kind, and a second one for kinds with optional fields.
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
        order_id: &order.id,
        kind: alert,
        raised_at: now,
        number: 2,
        told,
    };
    vec![
        offer_created(order, &s.offers[0], 1234.56),
        driver_assigned(order, &"D1".into(), now),
        driver_unassigned(order, &"D1".into(), "why", now),
        dispatch_failed(order, now),
        dispatch_failed(&bare, now),
        dispatcher_reminder(&repeated(DISPATCH_FAILED, &raised.body.to_payload()), now),
        alert_escalation(&repeated(MANUAL_REFUND_REQUIRED, &told.body.to_payload()), now),
        sla_warning(&repeated(MANUAL_REFUND_REQUIRED, &told.body.to_payload()), now + TimeDelta::hours(4), now),
        told.clone(),
        refund_required(&crate::order::Order { amount_minor: None, currency: None, ..bare.clone() }, "", now),
        refund_required(&crate::order::Order { currency: None, ..bare.clone() }, "", now),
        unexpected_state(order, "why", now),
        payment_alert(order, PaymentTopic::UnknownAtEnd, "why", now),
        timer_dead(order, "why", now),
        stale_trip(order, "why", now),
        stale_trip(&bare, "why", now),
        scheduled_without_driver(order, now + TimeDelta::minutes(10), now),
        scheduled_without_driver(&bare, now + TimeDelta::minutes(10), now),
        order_missing(&order.id, now),
        status_update_failed(&order.id, "no space left", now),
        partner_refuses_key(&"bbd".into(), &order.id, "401", now),
        cancelled_after_payment(&ended, now),
        job_id_retrieved(&order.id, "J-1", 4, Duration::from_micros(90_500_700), RetrievalMethod::Proactive, now),
        job_id_retrieved(&order.id, "J-1", 0, Duration::ZERO, RetrievalMethod::Callback, now),
        customer_cancelled(order, CancelCause::NotConfirmed, now),
        customer_cancelled(&bare, CancelCause::NoDriver, now),
    ]
}

#[test]
fn every_message_is_written_to_the_letter() {
    let mut written = String::new();
    for message in every_message() {
        let stored = message.to_stored_in(&TextCatalog::default());
        let text = text::render_message(&stored, Duration::from_secs(24 * 3600));
        written += &format!(
            "== {} to {:?}, once for '{}', until {}\n{}\n-- {}\n{}\n\n",
            message.kind(),
            message.audience,
            message.dedupe_key,
            message.expires_at,
            stored.payload,
            text.subject,
            text.body
        );
    }
    insta::assert_snapshot!(written);
}

#[test]
fn every_message_parses_back() {
    for message in every_message() {
        let stored = message.to_stored();
        assert_eq!(stored.read_body(), message.body, "{stored:?}");
        assert_eq!((stored.read_body().kind(), stored.read_body().subject_id()), (message.kind(), "ORD-1".into()));
    }
}

#[test]
fn messages_tolerate_missing_and_extra_fields() {
    for message in every_message() {
        let mut stored = message.to_stored();
        let fields = stored.payload.as_object_mut().unwrap();
        // A field that may be null may also be absent, because a version without the field wrote the row.
        fields.retain(|_, value| !value.is_null());
        fields.insert("added_later".to_owned(), json!({ "by": "a newer version" }));
        assert_eq!(stored.read_body(), message.body, "{stored:?}");
        assert!(stored.payload.get("added_later").is_some(), "receivers still get it");
    }
}

#[test]
fn unknown_row_keeps_its_content() {
    let day = Duration::from_secs(24 * 3600);
    let newer = StoredMessage {
        kind: "ORDER_PARKED".to_owned(),
        payload: json!({ "order_id": "ORD-1", "until": "tomorrow", "timestamp": "2027-01-15T08:00:00Z" }),
    };
    let body = newer.read_body();
    assert_eq!(body, MessageBody::Unknown(newer.clone()));
    assert_eq!((body.kind(), body.to_payload()), ("ORDER_PARKED", newer.payload.clone()));
    assert_eq!((body.subject_id(), body.told_at()), ("ORD-1".into(), Some(fixture::created_snapshot().now)));
    let shown = text::render_message(&newer, day);
    assert_eq!(shown.body, "ORDER_PARKED\n\norder_id: ORD-1\nuntil: tomorrow\ntimestamp: 2027-01-15T08:00:00Z");

    // An alert lists the required actions even if its fields differ.
    let older = StoredMessage {
        kind: MANUAL_REFUND_REQUIRED.to_owned(),
        payload: json!({ "order_id": "ORD-1", "severity": "high", "amount": 150_000 }),
    };
    assert_eq!(older.read_body(), MessageBody::Unknown(older.clone()));
    let shown = text::render_message(&older, day);
    assert_eq!(shown.subject, "🚨 Manual Refund Required: ORD-1");
    for line in ["amount: 150000\n", "2. Process full refund via refund module\n", "SLA: Within 24 hours"] {
        assert!(shown.body.contains(line), "{}", shown.body);
    }

    let escalation = StoredMessage {
        kind: MessageKind::Escalation.as_str().to_owned(),
        payload: json!({ "order_id": "ORD-1", "alert_id": 7, "alert_kind": MANUAL_REFUND_REQUIRED, "alert": older.payload }),
    };
    assert_eq!(escalation.read_body(), MessageBody::Unknown(escalation.clone()));
    let shown = text::render_message(&escalation, day).body;
    assert!(shown.contains("dispatchq alert ack 7") && shown.contains("Process full refund"), "{shown}");

    let cancelled = StoredMessage {
        kind: MessageKind::OrderCancelled.as_str().to_owned(),
        payload: json!({ "order_id": "ORD-1", "status": "NEWER", "reason": "no driver", "refund": true }),
    };
    assert_eq!(cancelled.read_body(), MessageBody::Unknown(cancelled.clone()));
    let shown = text::render_message(&cancelled, day).body;
    assert!(shown.contains("Your order ORD-1 was cancelled: no driver. You will get your money back"), "{shown}");

    for kind in MessageKind::ALL {
        let empty = StoredMessage { kind: kind.as_str().to_owned(), payload: json!({}) };
        assert_eq!(empty.read_body(), MessageBody::Unknown(empty.clone()));
    }
}
