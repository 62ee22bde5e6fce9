//! Outages of Redis or Postgres.

use reqwest::header::RETRY_AFTER;
use serde_json::json;

use accounts::api_keys::AccountRole;
use maintenance::recovery::reconciler;
use model::order::OrderStatus;
use test_support::{Api, TestApp, eventually, ride, secs};

#[tokio::test]
async fn without_redis_orders_are_taken_and_dispatched_later() {
    let mut t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.redis.kill().await;
    assert_eq!(api.get("/healthz", "").await.status, 200);
    let created = api.post("/api/v1/orders", &key, ride()).await;
    assert_eq!(created.status, 201, "{created:?}");

    t.redis.restart().await.unwrap();
    eventually("Redis answers", || async { t.app.core.store.ping().await.is_ok() }).await;
    t.advance(secs(5)).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    t.run_due().await;
    let order = created.text("order_id");
    assert_eq!(t.asked(order).await, "D1");
    t.accept_offer(order).await;
    assert_eq!(t.status(order).await, OrderStatus::DriverAssigned);
    t.assert_sound().await;
}

#[tokio::test]
async fn balanced_orders_go_on_without_redis() {
    let mut t = TestApp::start().await;
    let process = Api::start(&t.app).await;
    let api = process.behind_balancer(&t.app).await;
    let producer = t.key(AccountRole::Producer).await;
    let keys = [t.driver_key("D1").await, t.driver_key("D2").await];
    let accept = async |order: &str, driver: &str, key: &str| {
        let asked = api.get(&format!("/api/v1/drivers/{driver}/offers"), key).await;
        let offer = &asked.body["offers"][0];
        assert_eq!(offer["order_id"], order, "{asked:?}");
        let answer = json!({ "driver_id": driver, "offer_id": offer["offer_id"] });
        let accepted = api.post(&format!("/api/v1/orders/{order}/accept"), key, answer).await;
        assert_eq!((accepted.status, accepted.text("status")), (200, "DRIVER_ASSIGNED"));
    };
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    let ready = async || api.get("/readyz", "").await.body;
    let well = json!({ "ready": true, "degraded": false, "postgres": "ok", "redis": "ok" });
    eventually("it is well", || async { ready().await == well }).await;
    let first = api.post("/api/v1/orders", &producer, ride()).await;
    assert_eq!(first.status, 201, "{first:?}");
    t.run_due().await;

    // Customers create orders, and drivers accept earlier offers.
    t.redis.kill().await;
    let degraded = json!({ "ready": true, "degraded": true, "postgres": "ok", "redis": "unreachable" });
    eventually("it is degraded", || async { ready().await == degraded }).await;
    accept(first.text("order_id"), "D1", &keys[0]).await;
    let second = api.post("/api/v1/orders", &producer, ride()).await;
    assert_eq!(second.status, 201, "{second:?}");

    t.redis.restart().await.unwrap();
    eventually("it is well again", || async { ready().await == well }).await;
    t.advance(secs(5)).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    t.run_due().await;
    accept(second.text("order_id"), "D2", &keys[1]).await;
    t.carry_out(first.text("order_id"), "D1").await;
    t.carry_out(second.text("order_id"), "D2").await;
    t.run_due().await;
    t.assert_sound().await;

    // The load balancer sends no requests to a process that is not ready.
    t.postgres.stop().await.unwrap();
    eventually("the balancer notices", || async { api.get("/readyz", "").await.status == 502 }).await;
    let refused = api.post("/api/v1/orders", &producer, ride()).await;
    assert_eq!(refused.error(), (502, "none"), "the process itself would say DISPATCHER_SERVICE_UNAVAILABLE");
}

#[tokio::test]
async fn without_postgres_the_answer_is_to_ask_again() {
    let mut t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    t.postgres.stop().await.unwrap();
    let ready = api.get("/readyz", "").await;
    assert_eq!((ready.status, ready.text("redis"), ready.text("postgres")), (503, "ok", "unreachable"));
    for _ in 0..2 {
        let unready = api.send_raw("/readyz", &key).await;
        assert_eq!(unready.headers()[RETRY_AFTER], "1", "it makes no client wait longer");
        let body: serde_json::Value = unready.json().await.unwrap();
        assert_eq!((&body["ready"], &body["error_code"]), (&json!(false), &json!("NOT_READY")));
    }
    assert_eq!(api.get("/healthz", "").await.status, 200);
    let refused = api.send_raw("/api/v1/orders/ORD-1", &key).await;
    assert_eq!((refused.status().as_u16(), refused.headers()[RETRY_AFTER].as_bytes()), (503, &b"1"[..]));
    let refused = api.post_once("/api/v1/orders", &key, "k1", ride()).await;
    assert_eq!(refused.error(), (503, "DISPATCHER_SERVICE_UNAVAILABLE"));
    assert_eq!(refused.text("message"), "Layanan sedang tidak tersedia, silakan coba lagi");

    t.postgres.restart().await.unwrap();
    eventually("it is ready again", || async { api.get("/readyz", "").await.status == 200 }).await;
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
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    t.run_due().await;
    assert_eq!(t.asked(created.text("order_id")).await, "D1");
    t.assert_sound().await;
}
