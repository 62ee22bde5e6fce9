//! Which endpoint gets which event, and how processes learn about endpoints.

use serde_json::json;

use accounts::api_keys::AccountRole;
use maintenance::recovery::reconciler;
use model::decide::actions;
use test_support::{by, secs};
use tokio_util::sync::CancellationToken;

use super::{ENDPOINTS, Shop};
use test_support::eventually;

#[tokio::test]
async fn created_endpoint_gets_signed_events() {
    let shop = Shop::open().await;
    let secret = shop.create("/shop", &[]).await.text("secret").to_owned();
    shop.t.drivers(&[("D1", 100.0)]).await;
    shop.t.order("ORD-1").await;
    shop.t.run_due().await;
    shop.t.accept_offer("ORD-1").await;
    shop.t.carry_out("ORD-1", "D1").await;
    shop.t.run_due().await;
    let steps = ["created", "offered", "assigned", "picked_up", "completed"];
    assert_eq!(shop.told("/shop"), steps.map(|step| format!("order.{step} ORD-1")));
    let key = standardwebhooks::Webhook::new(&secret).unwrap();
    for message in shop.receiver.received() {
        key.verify(&message.bytes, &message.headers).unwrap();
        assert_eq!(message.body["id"], message.id.as_str());
        assert_eq!(message.body["version"], 1);
    }
    shop.t.assert_sound().await;
}

#[tokio::test]
async fn endpoint_gets_only_its_event_types() {
    let shop = Shop::open().await;
    shop.create("/ends", &["order.cancelled", "order.completed"]).await;
    shop.create("/starts", &["order.created"]).await;
    shop.t.order("ORD-1").await;
    shop.t.cancel("ORD-1").await.unwrap();
    shop.t.run_due().await;
    assert_eq!(shop.told("/ends"), ["order.cancelled ORD-1"]);
    assert_eq!(shop.told("/starts"), ["order.created ORD-1"]);
}

#[tokio::test]
async fn each_endpoint_of_a_producer_gets_each_event() {
    let shop = Shop::open().await;
    shop.create("/a", &[]).await;
    shop.create("/b", &[]).await;
    shop.t.order("ORD-1").await;
    shop.t.cancel("ORD-1").await.unwrap();
    shop.t.run_due().await;
    let both = ["order.created ORD-1", "order.cancelled ORD-1"];
    assert_eq!(
        (shop.told("/a"), shop.told("/b")),
        (both.map(str::to_owned).to_vec(), both.map(str::to_owned).to_vec())
    );
    let ids = "SELECT count(DISTINCT message_id) FROM outbox WHERE starts_with(channel, 'endpoint:')";
    assert_eq!(shop.t.count(ids).await, 4);
}

#[tokio::test]
async fn events_of_other_producers_stay_away() {
    let shop = Shop::open().await;
    let admin = shop.t.key(AccountRole::Admin).await;
    let body = json!({ "url": shop.receiver.url("/other"), "producer": "other", "reason": "a test" });
    assert_eq!(shop.api.post(ENDPOINTS, &admin, body).await.status, 201);
    shop.t.order("ORD-1").await;
    shop.t.run_due().await;
    assert_eq!(shop.receiver.received(), []);
    assert_eq!(shop.t.count("SELECT count(*) FROM outbox WHERE starts_with(channel, 'endpoint:')").await, 0);
}

#[tokio::test]
async fn endpoint_gets_paid_order_without_ride() {
    let shop = Shop::open().await;
    shop.create("/shop", &["order.cancelled_after_payment_no_job_id"]).await;
    shop.t.order_of("ORD-1", "RIDE", "SETTLEMENT").await;
    shop.t.run_for(secs(1800)).await;
    assert_eq!(shop.told("/shop"), ["order.cancelled_after_payment_no_job_id ORD-1"]);
    shop.t.assert_sound().await;
}

#[tokio::test]
async fn refused_event_is_a_dead_letter() {
    let shop = Shop::open().await;
    shop.create("/shop", &["order.created"]).await;
    shop.receiver.fail(axum::http::StatusCode::GONE, 1);
    shop.t.order("ORD-1").await;
    shop.t.run_due().await;
    assert_eq!(shop.t.texts("SELECT kind || ' ' || state FROM outbox").await, ["order.created dead"]);
}

#[tokio::test]
async fn sql_order_reports_creation_to_endpoint() {
    let shop = Shop::open().await;
    shop.create("/shop", &["order.created", "order.cancelled"]).await;
    shop.t.sql("SELECT dispatchq_create_order('SQL-1', 'RIDE', -6.2088, 106.8456, owner => 'test')").await;
    shop.t.advance(secs(10)).await;
    reconciler::reconcile_once(&shop.t.app.maintenance).await.unwrap();
    shop.t.act("SQL-1", |s| actions::cancel_order(s, &by("operator:test"), None)).await.unwrap();
    shop.t.run_due().await;
    assert_eq!(shop.told("/shop"), ["order.created SQL-1", "order.cancelled SQL-1"]);
}

#[tokio::test]
async fn other_processes_learn_about_changes() {
    let shop = Shop::open().await;
    let other = shop.t.reconfigured(|_| {});
    let stop = CancellationToken::new();
    tokio::spawn(other.notify.endpoints.clone().keep_fresh(other.core.clone(), stop.clone()));
    let is_known = || other.config.notifications.subscription_of(Some("test")).is_some();
    let id = shop.create("/shop", &[]).await.text("id").to_owned();
    eventually("the other process knows the endpoint", async || is_known()).await;
    assert_eq!(shop.post(&id, "pause", json!({})).await.status, 200);
    eventually("the other process knows the pause", async || !is_known()).await;
    assert_eq!(shop.post(&id, "resume", json!({})).await.status, 200);
    eventually("the other process knows that it is active", async || is_known()).await;
    assert_eq!(shop.delete(&id).await.status, 204);
    eventually("the other process knows the deletion", async || !is_known()).await;
    stop.cancel();
}
