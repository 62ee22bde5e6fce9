//! Signatures of events, and the rotation of secrets.

use serde_json::json;
use standardwebhooks::Webhook;

use super::Shop;
use test_support::{Received, secs};

/// Returns whether the secret verifies the message.
fn verifies(secret: &str, message: &Received) -> bool {
    Webhook::new(secret).unwrap().verify(&message.bytes, &message.headers).is_ok()
}

/// Sends a test event and returns it as it arrived.
async fn receive_test(shop: &Shop, id: &str) -> Received {
    let sent = shop.post(id, "test", json!({})).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    shop.t.run_due().await;
    let received = shop.receiver.received().pop().expect("a message");
    assert_eq!(received.id, sent.text("event_id"));
    received
}

#[tokio::test]
async fn test_event_is_signed_and_names_the_endpoint() {
    let shop = Shop::open().await;
    let made = shop.create("/shop", &["order.created"]).await;
    let id = made.text("id");
    let received = receive_test(&shop, id).await;
    assert!(verifies(made.text("secret"), &received));
    assert_eq!(
        received.body,
        json!({
            "id": received.id, "type": "endpoint.test", "timestamp": "2030-01-01T08:00:00Z", "version": 1,
            "data": { "endpoint_id": id, "producer": "test" },
        })
    );
    let other = receive_test(&shop, id).await;
    assert_ne!(other.id, received.id);
    shop.t.assert_sound().await;
}

#[tokio::test]
async fn both_secrets_sign_during_the_overlap() {
    let shop = Shop::open().await;
    let made = shop.create("/shop", &[]).await;
    let (id, old) = (made.text("id"), made.text("secret"));
    let rotated = shop.post(id, "rotate", json!({ "overlap_sec": 3600 })).await;
    assert_eq!(rotated.status, 200, "{rotated:?}");
    let new = rotated.text("secret");
    assert_ne!(new, old);
    let during = receive_test(&shop, id).await;
    assert!(verifies(old, &during) && verifies(new, &during));
    shop.t.advance(secs(3601)).await;
    let after = receive_test(&shop, id).await;
    assert!(!verifies(old, &after) && verifies(new, &after));
}

#[tokio::test]
async fn overlap_is_a_day_by_default() {
    let shop = Shop::open().await;
    let made = shop.create("/shop", &[]).await;
    let (id, old) = (made.text("id"), made.text("secret"));
    shop.post(id, "rotate", json!({})).await;
    shop.t.advance(secs(86_399)).await;
    assert!(verifies(old, &receive_test(&shop, id).await));
    shop.t.advance(secs(2)).await;
    assert!(!verifies(old, &receive_test(&shop, id).await));
}

#[tokio::test]
async fn rotation_without_overlap_ends_the_old_secret() {
    let shop = Shop::open().await;
    let made = shop.create("/shop", &[]).await;
    let (id, old) = (made.text("id"), made.text("secret"));
    let rotated = shop.post(id, "rotate", json!({ "overlap_sec": 0 })).await;
    let received = receive_test(&shop, id).await;
    assert!(!verifies(old, &received) && verifies(rotated.text("secret"), &received));
}

#[tokio::test]
async fn waiting_message_is_signed_with_new_secret() {
    let shop = Shop::open().await;
    let made = shop.create("/shop", &["order.created"]).await;
    shop.t.order("ORD-1").await;
    let rotated = shop.post(made.text("id"), "rotate", json!({})).await;
    shop.t.run_due().await;
    assert!(verifies(rotated.text("secret"), &shop.receiver.received()[0]));
}
