//! Messages for producers and customers.

use serde_json::json;

use model::{
    decide::actions,
    messages::{CANCELLED_AFTER_PAYMENT, ORDER_CANCELLED},
};
use settings::{ChannelConfig, WebhookConfig};
use test_support::{Receiver, TestApp, by, secs};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Configures signed webhooks for the producer and for customers.
async fn with_webhooks() -> (Receiver, TestApp) {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| {
        for name in ["producer", "customer"] {
            let webhook = WebhookConfig {
                url: Some(receiver.url(&format!("/{name}"))),
                secret: Some(SECRET.to_owned()),
                ..WebhookConfig::default()
            };
            config.channels.insert(name.to_owned(), ChannelConfig::Webhook(webhook));
        }
        config.notifications.producer = vec!["producer".to_owned()];
        config.notifications.customer = vec!["customer".to_owned()];
    })
    .await;
    (receiver, t)
}

#[tokio::test]
async fn ended_paid_order_notifies_producer_and_customer() {
    let (receiver, t) = with_webhooks().await;
    t.order_of("ORD-1", "RIDE", "SETTLEMENT").await;
    t.run_for(secs(1800)).await;
    let received = receiver.received();
    let key = standardwebhooks::Webhook::new(SECRET).unwrap();
    for message in &received {
        key.verify(&message.bytes, &message.headers).unwrap();
    }
    let at = |path: &str| received.iter().find(|m| m.path == path).unwrap();
    assert_eq!(received.len(), 2);
    assert_eq!(at("/producer").body["type"], CANCELLED_AFTER_PAYMENT);
    assert_eq!(
        at("/producer").body["data"],
        json!({
            "event": "order.cancelled_after_payment_no_job_id", "order_id": "ORD-1",
            "status": "CANCELLED_BY_SYSTEM_AFTER_PAYMENT", "payment_status": "SETTLEMENT", "total_attempts": 0,
            "action": "MANUAL_REFUND_REQUIRED", "timestamp": "2030-01-01T08:30:00Z",
        })
    );
    assert_eq!(at("/customer").body["type"], ORDER_CANCELLED);
    assert_eq!(at("/customer").body["data"]["refund"], true);
    assert_eq!(at("/customer").body["data"]["status"], "CANCELLED_BY_SYSTEM_AFTER_PAYMENT");
    t.assert_sound().await;
}

#[tokio::test]
async fn of_an_unpaid_order_only_the_customer_is_told() {
    let (receiver, t) = with_webhooks().await;
    t.order("ORD-1").await;
    t.run_for(secs(1800)).await;
    let [message] = receiver.received().try_into().expect("one message");
    assert_eq!((message.path.as_str(), &message.body["data"]["refund"]), ("/customer", &json!(false)));
    assert_eq!(t.count("SELECT count(*) FROM alerts").await, 0);
    t.assert_sound().await;
}

#[tokio::test]
async fn a_customer_who_cancels_is_not_told_what_they_did() {
    let (receiver, t) = with_webhooks().await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.cancel("ORD-1").await.unwrap();
    t.run_due().await;
    assert_eq!(receiver.received(), []);
    t.assert_sound().await;
}

#[tokio::test]
async fn order_ended_by_hand_notifies_the_customer() {
    let (receiver, t) = with_webhooks().await;
    t.order_of("ORD-1", "RIDE", "DISPUTED").await;
    t.run_for(secs(1800)).await;
    assert_eq!(receiver.received(), [], "nothing is decided yet");
    t.act("ORD-1", |s| actions::cancel_order(s, &by("operator:test"), None)).await.unwrap();
    t.run_due().await;
    assert_eq!(receiver.received().iter().map(|m| m.path.as_str()).collect::<Vec<_>>(), ["/customer"]);
    let acked = t
        .texts("SELECT kind || ' ' || acked_by || ' ' || ack_note FROM alerts WHERE dedupe_key <> 'payment-word'")
        .await;
    assert_eq!(acked, ["UNEXPECTED_STATE operator:test the review ended"]);
    t.assert_sound().await;
}
