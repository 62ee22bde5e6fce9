//! Refunds through a payment service: requested under one key and settled by its signed callback, or settled by hand
//! without a service.

mod words;

use axum::http::StatusCode;
use serde_json::json;

use maintenance::recovery::reconciler;
use model::{decide::money, messages::UNEXPECTED_STATE, order::OrderStatus};
use queue::Outcome;
use test_support::{Api, Counting, PAYMENT_SECRET, PaymentSim, TestApp, by, secs};

const ROWS: &str = "SELECT state || ' ' || tries FROM refunds";

/// Creates a paid order that the system has ended.
async fn owed(payments: Option<&PaymentSim>) -> TestApp {
    let t = TestApp::with(|config| {
        if let Some(payments) = payments {
            config.payments.url = payments.url.clone();
            config.payments.callback_secret = PAYMENT_SECRET.to_owned();
        }
    })
    .await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.run_for(secs(1800)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    t
}

async fn start_refund(t: &TestApp) {
    t.act("ORD-1", |s| money::start_refund(s, &by("support:test"), None)).await.unwrap();
}

#[tokio::test]
async fn refund_uses_idempotency_key_and_signed_callback() {
    let payments = PaymentSim::start().await;
    let t = owed(Some(&payments)).await;
    let api = Api::start(&t.app).await;
    let callbacks = api.url("/api/v1/payment-callbacks");
    assert_eq!(payments.asked().len(), 0, "nothing is paid before support says so");
    start_refund(&t).await;
    // The worker dies after the service has answered. The job sends the request again under the same key.
    let refund = t.take().await.into_iter().find(|job| job.delivery.id.as_str() == "refund:ORD-1").unwrap();
    let outcome = t.perform(&refund).await;
    assert!(matches!(outcome, Outcome::Snooze { delay } if delay == secs(3600)), "{outcome:?}");
    t.outlive_leases().await;
    t.run_for(secs(3600)).await;
    let question = json!({ "reference": "ORD-1", "amount_minor": 150_000, "currency": "IDR" });
    let asked = payments.asked();
    assert!(asked.len() >= 2 && asked.iter().all(|q| *q == ("refund-ORD-1".to_owned(), question.clone())), "{asked:?}");
    assert_eq!(t.texts(ROWS).await, ["accepted 0"]);
    assert_eq!(t.status("ORD-1").await, OrderStatus::RefundPending);

    let done = json!({ "type": "refund.completed", "refund_id": "RF-1", "reference": "ORD-1" });
    let forged = payments.call_back(&callbacks, &done, "whsec_b25lIG9mIG9sZCBvciBvbmUgb2YgbmV3").await;
    assert_eq!((forged.0, t.status("ORD-1").await), (401, OrderStatus::RefundPending));
    for status in ["processed", "ignored"] {
        assert_eq!(payments.call_back(&callbacks, &done, PAYMENT_SECRET).await, (200, json!({ "status": status })));
    }
    assert_eq!(t.status("ORD-1").await, OrderStatus::Refunded);
    assert_eq!(t.texts(ROWS).await, ["refunded 0"]);
    let asked = payments.asked().len();
    t.run_for(secs(7200)).await;
    assert_eq!(payments.asked().len(), asked, "nothing is asked any more");
    t.assert_sound().await;
}

/// A payment service sends callbacks of unknown types, and repeats each callback that is not answered 200.
#[tokio::test]
async fn unknown_payment_callback_is_ignored() {
    let payments = PaymentSim::start().await;
    let t = owed(Some(&payments)).await;
    let api = Api::start(&t.app).await;
    let callbacks = api.url("/api/v1/payment-callbacks");
    start_refund(&t).await;
    t.run_due().await;
    let before = t.dump().await;
    let unknown = [
        json!({ "type": "payout.created", "payout_id": "PO-1" }),
        json!({ "type": "refund.disputed", "refund_id": "RF-1", "reference": "ORD-1" }),
        json!({ "type": "refund.disputed", "refund_id": "RF-9", "reference": "not ours" }),
        json!({ "type": "refund.disputed", "refund_id": 9, "reference": "ORD-9", "reason": ["x"] }),
    ];
    for body in &unknown {
        let answer = payments.call_back(&callbacks, body, PAYMENT_SECRET).await;
        assert_eq!(answer, (200, json!({ "status": "ignored" })), "{body}");
    }
    assert_eq!(t.dump().await, before);
    assert_eq!(t.texts(ROWS).await, ["accepted 0"]);
    let forged = payments.call_back(&callbacks, &unknown[0], "whsec_b25lIG9mIG9sZCBvciBvbmUgb2YgbmV3").await;
    assert_eq!(forged.0, 401, "only of what the service has signed");
    for body in [json!({ "reference": "ORD-1" }), json!({ "type": "refund.completed", "reference": "ORD-1" })] {
        assert_eq!(payments.call_back(&callbacks, &body, PAYMENT_SECRET).await.0, 422, "{body}");
    }
}

#[tokio::test]
async fn polling_replaces_a_lost_refund_callback() {
    let payments = PaymentSim::start().await;
    let t = owed(Some(&payments)).await;
    start_refund(&t).await;
    t.run_due().await;
    payments.answer_with(StatusCode::OK, json!({ "refund_id": "RF-1", "status": "refunded" }));
    t.run_for(secs(3600)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::Refunded);
    t.assert_sound().await;
}

#[tokio::test]
async fn refund_retries_outage_and_leaves_refusal_to_support() {
    let payments = PaymentSim::start().await;
    payments.answer_with(StatusCode::SERVICE_UNAVAILABLE, json!({}));
    let t = owed(Some(&payments)).await;
    start_refund(&t).await;
    t.run_for(secs(10)).await;
    let asked = payments.asked().len();
    assert!(asked >= 3, "{asked}");
    assert_eq!(t.texts(ROWS).await, [format!("asking {asked}")]);
    t.redis::<()>(&["FLUSHALL"]).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    assert!(t.timers().await.contains_key("refund:ORD-1"), "the row has its timer again");

    payments.answer_with(StatusCode::UNPROCESSABLE_ENTITY, json!({}));
    t.run_for(secs(30)).await;
    assert_eq!(t.texts("SELECT state FROM refunds").await, ["refused"]);
    assert_eq!(t.status("ORD-1").await, OrderStatus::RefundPending);
    assert_eq!(t.messages_of("ORD-1", UNEXPECTED_STATE).await, 1);
    let asked = payments.asked().len();
    t.act("ORD-1", |s| money::finish_refund(s, &by("support:test"), None)).await.unwrap();
    t.run_for(secs(3600)).await;
    assert_eq!((payments.asked().len(), t.status("ORD-1").await), (asked, OrderStatus::Refunded));
    t.assert_sound().await;
}

#[tokio::test]
async fn without_payment_service_refunds_are_manual() {
    let t = owed(None).await;
    start_refund(&t).await;
    t.run_for(secs(60)).await;
    assert_eq!(t.count("SELECT count(*) FROM refunds").await, 0);
    t.act("ORD-1", |s| money::finish_refund(s, &by("support:test"), None)).await.unwrap();
    assert_eq!(t.status("ORD-1").await, OrderStatus::Refunded);
    t.assert_sound().await;
}

// Rule F15: Only the refund id that the payment service returned settles the order. Any other id is recorded and
// reported once.
// Rule F15: A failed refund is recorded in the timeline.
#[tokio::test]
async fn callback_of_another_refund_settles_nothing() {
    let payments = PaymentSim::start().await;
    let t = owed(Some(&payments)).await;
    let api = Api::start(&t.app).await;
    let callbacks = api.url("/api/v1/payment-callbacks");
    let call = async |kind: &str, id: &str| {
        let body = json!({ "type": kind, "refund_id": id, "reference": "ORD-1", "reason": "card closed" });
        let (status, answer) = payments.call_back(&callbacks, &body, PAYMENT_SECRET).await;
        (status, answer["status"].as_str().or(answer["error_code"].as_str()).unwrap_or_default().to_owned())
    };
    let (conflict, ignored) = (409, (200, "ignored".to_owned()));
    assert_eq!(call("refund.completed", "RF-1").await, (conflict, "WRONG_STATE".to_owned()));
    start_refund(&t).await;
    assert_eq!(call("refund.completed", "RF-1").await, (conflict, "REFUND_UNANSWERED".to_owned()), "before the answer");
    t.run_due().await;
    assert_eq!(t.texts(ROWS).await, ["accepted 0"]);
    for (kind, id) in [
        ("refund.completed", "RF-OTHER"),
        ("refund.completed", "RF-OTHER"),
        ("refund.completed", "RF-THIRD"),
        ("refund.failed", "RF-OTHER"),
    ] {
        assert_eq!(call(kind, id).await, ignored);
    }
    assert_eq!(t.status("ORD-1").await, OrderStatus::RefundPending);
    let ids = "SELECT refund_id || ' ' || array_to_string(other_refund_ids, ' ') FROM refunds";
    assert_eq!(t.texts(ids).await, ["RF-1 RF-OTHER RF-THIRD"]);
    let entries = async |reason: &str| t.reasons("ORD-1").await.iter().filter(|r| *r == reason).count();
    assert_eq!((entries("REFUND_ID_MISMATCH").await, t.messages_of("ORD-1", UNEXPECTED_STATE).await), (2, 1));

    assert_eq!(call("refund.failed", "RF-1").await, (200, "processed".to_owned()));
    assert_eq!(call("refund.failed", "RF-1").await, ignored);
    assert_eq!((entries("REFUND_FAILED").await, t.messages_of("ORD-1", UNEXPECTED_STATE).await), (1, 2));
    assert_eq!(call("refund.completed", "RF-1").await, (200, "processed".to_owned()), "paid after all");
    assert_eq!(t.status("ORD-1").await, OrderStatus::Refunded);
    assert_eq!(call("refund.completed", "RF-2").await, ignored);
    assert_eq!(entries("REFUND_ID_MISMATCH").await, 3, "a second refund of the same order is seen");
    t.assert_sound().await;
}

// Rule F15: A payment by the service after a person settled the refund is recorded and reported once.
#[tokio::test]
async fn payment_after_settlement_by_hand_is_told() {
    let (payments, counting) = (PaymentSim::start().await, Counting::start());
    let t = owed(Some(&payments)).await;
    let api = Api::start(&t.app).await;
    let callbacks = api.url("/api/v1/payment-callbacks");
    start_refund(&t).await;
    t.run_due().await;
    t.act("ORD-1", |s| money::finish_refund(s, &by("support:test"), None)).await.unwrap();
    assert_eq!(t.texts(ROWS).await, ["refunded 0"]);
    for (kind, answer) in [
        ("refund.failed", "processed"),
        ("refund.failed", "ignored"),
        ("refund.completed", "processed"),
        ("refund.completed", "ignored"),
        ("refund.failed", "ignored"),
    ] {
        let body = json!({ "type": kind, "refund_id": "RF-1", "reference": "ORD-1", "reason": "card closed" });
        let called = payments.call_back(&callbacks, &body, PAYMENT_SECRET).await;
        assert_eq!(called, (200, json!({ "status": answer })), "{kind}");
    }
    let reasons = t.reasons("ORD-1").await;
    assert_eq!(reasons[reasons.len() - 3..], ["REFUNDED", "REFUND_FAILED", "REFUNDED_TWICE"]);
    assert_eq!(t.messages_of("ORD-1", UNEXPECTED_STATE).await, 1);
    assert_eq!(t.status("ORD-1").await, OrderStatus::Refunded);
    let counted = "dispatchq_manual_interventions_total{alert=\"UNEXPECTED_STATE\"}";
    assert_eq!(counting.read().value(counted), 1.0);
    t.assert_sound().await;
}

// Rule F15: When the answer settles the order, its refund id is kept and later callbacks are checked against it.
#[tokio::test]
async fn refund_of_an_answer_keeps_its_id() {
    let payments = PaymentSim::start().await;
    payments.answer_with(StatusCode::OK, json!({ "refund_id": "RF-7", "status": "refunded" }));
    let t = owed(Some(&payments)).await;
    start_refund(&t).await;
    t.run_due().await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::Refunded);
    assert_eq!(t.texts("SELECT state || ' ' || refund_id FROM refunds").await, ["refunded RF-7"]);
}
