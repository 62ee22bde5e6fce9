//! Paused and deleted endpoints.

use axum::http::StatusCode;
use serde_json::json;

use super::Shop;
use test_support::secs;

/// States and errors of the messages for endpoints.
const STATES: &str =
    "SELECT concat_ws(' ', kind, state, last_error) FROM outbox WHERE starts_with(channel, 'endpoint:')
                      ORDER BY id";

#[tokio::test]
async fn deleted_endpoint_gets_no_waiting_message() {
    let shop = Shop::open().await;
    let id = shop.create("/shop", &["order.created"]).await.text("id").to_owned();
    shop.receiver.fail(StatusCode::SERVICE_UNAVAILABLE, 1);
    shop.t.order("ORD-1").await;
    shop.t.run_due().await;
    assert_eq!(shop.delete(&id).await.status, 204);
    shop.t.run_for(secs(60)).await;
    assert_eq!(shop.receiver.received().len(), 1, "only the first try");
    assert_eq!(shop.t.texts(STATES).await, ["order.created expired the endpoint was deleted"]);
    shop.t.order("ORD-2").await;
    shop.t.run_due().await;
    assert_eq!(shop.t.texts(STATES).await.len(), 1);
    assert_eq!(shop.t.count("SELECT count(*) FROM webhook_endpoints").await, 0, "its secret is gone");
}

#[tokio::test]
async fn paused_endpoint_gets_no_events() {
    let shop = Shop::open().await;
    let id = shop.create("/shop", &["order.created"]).await.text("id").to_owned();
    let paused = shop.post(&id, "pause", json!({})).await;
    assert_eq!((paused.status, paused.text("state")), (200, "paused"));
    shop.t.order("ORD-1").await;
    shop.t.run_due().await;
    assert_eq!(shop.post(&id, "resume", json!({})).await.text("state"), "active");
    shop.t.run_for(secs(700)).await;
    assert_eq!(shop.receiver.received(), [], "not without a replay");
    shop.t.order("ORD-2").await;
    shop.t.run_due().await;
    assert_eq!(shop.told("/shop"), ["order.created ORD-2"]);
}

#[tokio::test]
async fn message_before_the_pause_waits_for_the_resumption() {
    let shop = Shop::open().await;
    let id = shop.create("/shop", &["order.created"]).await.text("id").to_owned();
    shop.t.order("ORD-1").await;
    shop.post(&id, "pause", json!({})).await;
    shop.t.run_for(secs(60)).await;
    assert_eq!(shop.receiver.received(), []);
    assert_eq!(shop.t.texts(STATES).await, ["order.created pending the endpoint is paused"]);
    shop.post(&id, "resume", json!({})).await;
    shop.t.run_for(secs(600)).await;
    assert_eq!(shop.told("/shop"), ["order.created ORD-1"]);
}

#[tokio::test]
async fn repeated_pause_changes_nothing() {
    let shop = Shop::open().await;
    let id = shop.create("/shop", &[]).await.text("id").to_owned();
    let paused = shop.post(&id, "pause", json!({})).await;
    shop.t.order("ORD-1").await;
    assert_eq!(shop.post(&id, "pause", json!({})).await, paused);
    assert_eq!(shop.t.count("SELECT count(*) FROM staff_actions WHERE action = 'ENDPOINT_PAUSED'").await, 1);
}
