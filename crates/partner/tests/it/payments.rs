//! Payment reports of the producer over HTTP: each counts once, statuses only advance, and reports after the end of the
//! order count too.

use serde_json::json;

use accounts::api_keys::AccountRole;
use model::{
    decide::actions,
    messages::{MANUAL_REFUND_REQUIRED, ORDER_CANCELLED, UNEXPECTED_STATE},
    order::OrderStatus,
};
use test_support::{
    partnership::{Partnership, silent},
    secs,
};

async fn with_key(payment: &str) -> (Partnership, String) {
    let p = Partnership::start(silent()).await;
    p.booked("ORD-1", payment).await;
    let key = p.key(AccountRole::Producer).await;
    (p, key)
}

#[tokio::test]
async fn an_event_counts_once_and_money_only_moves_forward() {
    let (p, key) = with_key("UNPAID").await;
    for (event, status, holds) in [
        ("P-1", "PENDING", "PENDING"),
        ("P-2", "PAID", "PAID"),
        ("P-2", "PAID", "PAID"),
        ("P-3", "PENDING", "PAID"),
        ("P-4", "SETTLEMENT", "SETTLEMENT"),
        ("P-5", "PAID", "SETTLEMENT"),
        ("P-1", "PENDING", "SETTLEMENT"),
    ] {
        let answer = p.pay(&key, event, status).await;
        assert_eq!((answer.status, answer.text("payment_status")), (200, holds), "{event} {status}");
    }
    assert_eq!(p.count("SELECT count(*) FROM payment_events").await, 5);
    let changes = p.reasons("ORD-1").await.iter().filter(|r| *r == "PAYMENT_CHANGED").count();
    assert_eq!(changes, 3);
    assert_eq!(p.pay(&key, "P-1", "PAID").await.error(), (422, "PAYMENT_EVENT_REUSED"));
    for (event, status) in [("", "PAID"), ("P-9", "paid")] {
        assert_eq!(p.pay(&key, event, status).await.status, 422, "{event:?} {status}");
    }
    p.assert_sound().await;
}

#[tokio::test]
async fn money_that_comes_after_each_kind_of_cancel_is_refunded() {
    for (cancel, status) in [
        ("system", OrderStatus::CancelledBySystemAfterPayment),
        ("user", OrderStatus::CancelledByUser),
        ("driver", OrderStatus::CancelledByDriver),
    ] {
        let (p, key) = with_key("UNPAID").await;
        match cancel {
            "system" => drop(p.run_for(secs(1801)).await),
            "user" => drop(p.cancel("ORD-1").await.unwrap()),
            _ => {
                let ids = json!({ "job_id": "J-1", "driver_id": "D-1" });
                p.tell("ORD-1", 1, "driver_assigned", ids).await;
                p.advance(secs(1800)).await;
                p.tell("ORD-1", 1, "driver_cancelled", json!({})).await;
            }
        }
        p.run_for(secs(30)).await;
        assert_eq!(p.messages_of("ORD-1", MANUAL_REFUND_REQUIRED).await, 0, "{cancel}");
        for (event, payment) in [("P-1", "PAID"), ("P-1", "PAID"), ("P-2", "SETTLEMENT")] {
            let answer = p.pay(&key, event, payment).await;
            assert_eq!((answer.status, answer.text("status")), (200, status.as_str()), "{cancel}");
        }
        assert_eq!(p.messages_of("ORD-1", MANUAL_REFUND_REQUIRED).await, 1, "{cancel}");
        p.run_for(secs(30)).await;
        p.assert_at_rest().await;
    }
}

#[tokio::test]
async fn held_payment_continues_with_next_event() {
    for (payment, status) in
        [("PAID", OrderStatus::CancelledBySystemAfterPayment), ("UNPAID", OrderStatus::CancelledBySystem)]
    {
        let (p, key) = with_key("DISPUTE").await;
        p.run_for(secs(1801)).await;
        let order = p.snapshot("ORD-1").await.order;
        assert!(order.status == OrderStatus::Compensating && order.held_for_review);
        assert_eq!(p.messages_of("ORD-1", UNEXPECTED_STATE).await, 2, "of the word, and of the end");
        assert_eq!(p.pay(&key, "P-1", payment).await.status, 200);
        p.run_due().await;
        assert_eq!(p.status("ORD-1").await, status);
        p.assert_at_rest().await;
    }
}

#[tokio::test]
async fn support_refunds_step_by_step_and_each_step_once() {
    let (p, producer) = with_key("PAID").await;
    let support = p.key(AccountRole::Support).await;
    assert_eq!(p.refund(&support, "start").await.error(), (409, "WRONG_STATE"));
    p.run_for(secs(1801)).await;
    assert_eq!(p.refund(&producer, "start").await.status, 403);
    assert_eq!(p.refund(&support, "done").await.error(), (409, "WRONG_STATE"));
    for (action, status) in
        [("start", "REFUND_PENDING"), ("start", "REFUND_PENDING"), ("done", "REFUNDED"), ("done", "REFUNDED")]
    {
        let answer = p.refund(&support, action).await;
        assert_eq!((answer.status, answer.text("status")), (200, status), "{action}");
    }
    assert_eq!(p.refund(&support, "undo").await.status, 422);
    assert_eq!(p.reasons("ORD-1").await.iter().filter(|r| r.starts_with("REFUND")).count(), 2);
    // The payment provider confirms with a payment report.
    assert_eq!(p.pay(&producer, "P-1", "REFUNDED").await.status, 200);
    p.assert_at_rest().await;
}

// Rule U12: The answer to a cancel with the passenger aboard states that the trip continues and which refund is owed.
#[tokio::test]
async fn late_cancel_tells_of_trip_and_debt() {
    let (p, key) = with_key("PAID").await;
    p.tell("ORD-1", 1, "driver_assigned", json!({ "job_id": "J-1", "driver_id": "D-1" })).await;
    p.tell("ORD-1", 1, "picked_up", json!({})).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::PickedUp);
    for _ in 0..2 {
        let answer = p.api.post("/api/v1/orders/ORD-1/cancel", &key, json!({})).await;
        assert_eq!((answer.status, answer.text("status")), (200, "CANCELLED_BY_USER"));
        assert_eq!(answer.body["trip_continues"], true, "{answer:?}");
        assert_eq!(answer.body["refund"], json!({ "state": "owed", "amount_minor": 150_000, "currency": "IDR" }));
    }
    // Before the pickup the partner cancels as well.
    p.booked("ORD-2", "UNPAID").await;
    p.tell("ORD-2", 1, "driver_assigned", json!({ "job_id": "J-2", "driver_id": "D-2" })).await;
    let answer = p.api.post("/api/v1/orders/ORD-2/cancel", &key, json!({})).await;
    assert_eq!(answer.status, 200);
    assert!(answer.body.get("trip_continues").is_none() && answer.body.get("refund").is_none(), "{answer:?}");
}

#[tokio::test]
async fn nothing_paid_is_nothing_to_refund() {
    let (p, _) = with_key("UNPAID").await;
    let support = p.key(AccountRole::Support).await;
    p.cancel("ORD-1").await.unwrap();
    assert_eq!(p.refund(&support, "start").await.error(), (409, "NOTHING_PAID"));
}

// Fault F11
/// A partner's driver who cancels after the lifetime has the same effect as a driver of our own fleet.
#[tokio::test]
async fn late_partner_cancel_notifies_customer_and_support() {
    for (payment, about_money) in
        [("UNPAID", None), ("PAID", Some(MANUAL_REFUND_REQUIRED)), ("DISPUTE", Some(UNEXPECTED_STATE))]
    {
        let (p, _) = with_key(payment).await;
        let ids = json!({ "job_id": "J-1", "driver_id": "D-1" });
        p.tell("ORD-1", 1, "driver_assigned", ids).await;
        p.advance(secs(1800)).await;
        p.tell("ORD-1", 1, "driver_cancelled", json!({})).await;
        assert_eq!(p.status("ORD-1").await, OrderStatus::CancelledByDriver, "{payment}");

        // The same order with a driver of our own fleet.
        p.t.drivers(&[("D1", 100.0)]).await;
        p.t.order_of("OWN-1", "RIDE", payment).await;
        p.run_due().await;
        p.t.accept_offer("OWN-1").await;
        p.advance(secs(1800)).await;
        p.t.act("OWN-1", |s| actions::cancel_by_driver(s, &"D1".into(), None)).await.unwrap();
        assert_eq!(p.status("OWN-1").await, OrderStatus::CancelledByDriver, "{payment}");

        for order in ["ORD-1", "OWN-1"] {
            assert_eq!(p.messages_of(order, ORDER_CANCELLED).await, 1, "{order} {payment}: the customer is told");
            for kind in [MANUAL_REFUND_REQUIRED, UNEXPECTED_STATE] {
                // Support was already notified of the unknown status.
                let told = if kind == UNEXPECTED_STATE { 2 } else { 1 };
                let expected = if about_money == Some(kind) { told } else { 0 };
                assert_eq!(p.messages_of(order, kind).await, expected, "{order} {payment}: {kind}");
            }
        }
    }
}
