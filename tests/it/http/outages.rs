//! While Redis or Postgres is away.

use dispatch::{accounts::api_keys::AccountRole, orders::OrderStatus, recovery::reconciler};

use super::ride;
use crate::support::{Api, TestApp, eventually, secs};

#[tokio::test]
async fn without_redis_orders_are_taken_and_dispatched_later() {
    let mut t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    t.drivers(&[("D1", 100.0)]).await;
    assert_eq!(api.get("/readyz", "").await.status, 200);

    t.redis.kill().await;
    let ready = api.get("/readyz", "").await;
    assert_eq!((ready.status, ready.text("redis"), ready.text("postgres")), (503, "unreachable", "ok"));
    assert_eq!(api.get("/healthz", "").await.status, 200);
    let created = api.post("/api/v1/orders", &key, ride()).await;
    assert_eq!(created.status, 201, "{created:?}");

    t.redis.restart().await.unwrap();
    assert_eq!(api.get("/readyz", "").await.status, 200);
    t.advance(secs(5)).await;
    reconciler::reconcile_once(&t.app).await.unwrap().unwrap();
    t.run_due().await;
    let order = created.text("order_id");
    assert_eq!(t.asked(order).await, "D1");
    t.accept_offer(order).await;
    assert_eq!(t.status(order).await, OrderStatus::DriverAssigned);
    t.assert_sound().await;
}

#[tokio::test]
async fn without_postgres_the_answer_is_to_ask_again() {
    let mut t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    t.postgres.stop().await.unwrap();
    let ready = api.get("/readyz", "").await;
    assert_eq!((ready.status, ready.text("redis"), ready.text("postgres")), (503, "ok", "unreachable"));
    assert_eq!(api.get("/healthz", "").await.status, 200);
    let refused = api.post_once("/api/v1/orders", &key, "k1", ride()).await;
    assert_eq!(refused.error(), (503, "UNAVAILABLE"));

    t.postgres.restart().await.unwrap();
    eventually("it is ready again", secs(10), || async { api.get("/readyz", "").await.status == 200 }).await;
    let again = api.post_once("/api/v1/orders", &key, "k1", ride()).await;
    assert_eq!((again.status, again.replayed), (201, false));
    t.run_due().await;
    t.assert_sound().await;
}

#[tokio::test]
async fn a_full_redis_refuses_timers_but_no_order() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.redis::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let created = api.post("/api/v1/orders", &key, ride()).await;
    assert_eq!(created.status, 201, "{created:?}");
    assert!(t.timers().await.is_empty());
    let shown = api.get(&format!("/api/v1/orders/{}", created.text("order_id")), &key).await;
    assert_eq!((shown.status, shown.text("status")), (200, "DISPATCHING"));

    t.redis::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await;
    t.advance(secs(5)).await;
    reconciler::reconcile_once(&t.app).await.unwrap().unwrap();
    t.run_due().await;
    assert_eq!(t.asked(created.text("order_id")).await, "D1");
    t.assert_sound().await;
}
