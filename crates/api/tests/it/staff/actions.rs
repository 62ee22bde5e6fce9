//! Decisions on orders: their records, repeated requests, and clients that disconnect.

use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{ORDERS, because};
use accounts::api_keys::AccountRole;
use model::{decide::actions, order::OrderStatus};
use test_support::{Answer, Api, TestApp, eventually, lasting_transaction, secs};

/// Returns `reason actor detail` of each staff action on an order.
async fn history(t: &TestApp, order: &str) -> Vec<String> {
    let events = format!(
        "SELECT concat_ws(' ', reason, actor, detail) FROM order_events
         WHERE order_id = '{order}' AND actor LIKE 'dispatcher:%' AND reason <> 'ATTEMPT_WITHDRAWN' AND key_id IS NOT NULL
         ORDER BY seq"
    );
    t.texts(&events).await
}

fn path(order: &str, action: &str) -> String {
    format!("{ORDERS}/{order}/{action}")
}

#[tokio::test]
async fn each_decision_is_recorded_with_its_reason() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let key = t.key(AccountRole::Dispatcher).await;
    let act = async |action: &str, body: Value| -> Answer { api.post(&path("ORD-1", action), &key, body).await };

    let held = act("hold", because("the customer calls back")).await;
    assert_eq!((held.status, &held.body["held_for_review"], &held.body["next"]), (200, &json!(true), &json!(null)));
    assert_eq!(act("hold", because("again")).await.status, 200, "it is held already");
    let explained = api.get(&path("ORD-1", "explain"), &key).await;
    assert_eq!(explained.text("why"), "A person must decide: the customer calls back.");
    assert!(explained.body["to_do"].to_string().contains("dispatchq order resume ORD-1"), "{explained:?}");
    t.advance(secs(200)).await;
    t.run_due().await;
    assert!(t.live_offers("ORD-1").await.is_empty(), "no driver is asked");

    let resumed = act("resume", because("all is well")).await;
    assert_eq!(resumed.body["next"]["action"], "NEXT_ATTEMPT");
    assert_eq!(act("resume", because("again")).await.status, 200);
    t.run_due().await;
    assert_eq!(t.live_offers("ORD-1").await.len(), 1, "the search goes on");
    let assigned = act("assign", json!({ "driver_id": "D2", "reason": "asked by phone" })).await;
    assert_eq!((assigned.text("status"), assigned.text("driver_id")), ("DRIVER_ASSIGNED", "D2"));
    assert_eq!(act("release", because("a flat tyre")).await.text("status"), "DISPATCHING");
    assert_eq!(act("redispatch", because("nothing to do")).await.status, 200, "it is searched already");
    assert_eq!(
        history(&t, "ORD-1").await,
        [
            "HELD_FOR_REVIEW dispatcher:test-dispatcher the customer calls back",
            "RESUMED_BY_HAND dispatcher:test-dispatcher all is well",
            "ASSIGNED_BY_HAND dispatcher:test-dispatcher D2: asked by phone",
            "TAKEN_BACK dispatcher:test-dispatcher a flat tyre",
        ]
    );
    t.assert_sound().await;
}

#[tokio::test]
async fn what_cannot_be_done_is_said_and_changes_nothing() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.order("ORD-1").await;
    t.order("ENDED").await;
    t.cancel("ENDED").await.unwrap();
    let key = t.key(AccountRole::Operator).await;
    let before = t.dump().await;
    let to_d9 = json!({ "driver_id": "D9", "reason": "why" });
    for (order, action, body, status, code) in [
        ("ORD-404", "hold", because("why"), 404, "ORDER_NOT_FOUND"),
        ("ORD-404", "explain", Value::Null, 404, "ORDER_NOT_FOUND"),
        ("ORD-1", "assign", to_d9, 404, "DRIVER_NOT_FOUND"),
        ("ORD-1", "release", because("why"), 409, "WRONG_STATE"),
        ("ENDED", "hold", because("why"), 409, "ORDER_FINISHED"),
        ("ENDED", "resume", because("why"), 409, "ORDER_FINISHED"),
        ("ENDED", "redispatch", because("why"), 409, "ORDER_FINISHED"),
        ("ORD-1", "hold", json!({}), 422, "INVALID"),
        ("ORD-1", "hold", because(" "), 422, "INVALID"),
        ("ORD-1", "hold", because(&"x".repeat(501)), 422, "INVALID"),
        ("ORD-1", "hold", because("a\u{202e}b"), 422, "INVALID"),
        ("ORD-1", "hold", json!({ "reason": "why", "colour": "red" }), 422, "INVALID"),
        ("ORD-1", "assign", because("no driver"), 422, "INVALID"),
        ("a:b", "hold", because("why"), 422, "INVALID"),
    ] {
        let answer = if body.is_null() {
            api.get(&path(order, action), &key).await
        } else {
            api.post(&path(order, action), &key, body).await
        };
        assert_eq!(answer.error(), (status, code), "{action} {order}: {answer:?}");
        assert!(!answer.text("message").is_empty());
    }
    assert_eq!(t.dump().await, before);
    t.advance(secs(60)).await;
    assert_eq!(api.post(&path("ORD-1", "hold"), &key, because("wait")).await.status, 200);
    t.advance(secs(1800)).await;
    assert_eq!(api.post(&path("ORD-1", "resume"), &key, because("go on")).await.error(), (409, "LIFETIME_OVER"));
}

#[tokio::test]
async fn repeated_decision_returns_the_first_answer() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    let key = t.key(AccountRole::Dispatcher).await;
    let once = async |action: &str, idempotency: &str, body: Value| -> Answer {
        api.post_once(&path("ORD-1", action), &key, idempotency, body).await
    };
    let to_d1 = json!({ "driver_id": "D1", "reason": "asked by phone" });
    let assigned = once("assign", "k1", to_d1.clone()).await;
    assert_eq!((assigned.status, assigned.replayed), (200, false));
    assert_eq!(once("assign", "k1", to_d1).await, Answer { replayed: true, ..assigned });
    let released = once("release", "k2", because("a flat tyre")).await;
    assert_eq!(once("release", "k2", because("a flat tyre")).await, Answer { replayed: true, ..released });
    assert_eq!(once("release", "k2", because("another")).await.error(), (422, "IDEMPOTENCY_KEY_REUSED"));
    assert_eq!(once("release", "k3", because("a flat tyre")).await.error(), (409, "WRONG_STATE"));

    // The process that released the order died before it answered.
    t.sql("UPDATE idempotency_keys SET status = NULL, body = NULL WHERE key = 'k2'").await;
    t.advance(secs(61)).await;
    assert_eq!(once("release", "k2", because("a flat tyre")).await.text("status"), "DISPATCHING");
    let taken_back = "SELECT count(*) FROM order_events WHERE reason = 'TAKEN_BACK'";
    assert_eq!(t.count(taken_back).await, 1);
}

/// The answers to both assignments were lost. The driver of the second assignment has the order.
#[tokio::test]
async fn repeated_assignment_differs_from_another_driver() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    let key = t.key(AccountRole::Dispatcher).await;
    let once = async |action: &str, idempotency: &str, body: Value| -> Answer {
        api.post_once(&path("ORD-1", action), &key, idempotency, body).await
    };
    let to = |driver: &str| json!({ "driver_id": driver, "reason": "asked by phone" });
    assert_eq!(once("assign", "k1", to("D1")).await.text("driver_id"), "D1");
    assert_eq!(once("release", "k2", because("a flat tyre")).await.status, 200);
    assert_eq!(once("assign", "k3", to("D2")).await.text("driver_id"), "D2");
    t.sql("UPDATE idempotency_keys SET status = NULL, body = NULL").await;
    t.advance(secs(61)).await;
    assert_eq!(once("assign", "k1", to("D1")).await.error(), (409, "WRONG_STATE"));
    assert_eq!(once("assign", "k3", to("D2")).await.text("driver_id"), "D2");
    // The repeat also works after the driver has continued with the order.
    t.sql("UPDATE idempotency_keys SET status = NULL, body = NULL").await;
    t.act("ORD-1", |s| actions::record_pickup(s, &"D2".into())).await.unwrap();
    t.advance(secs(61)).await;
    assert_eq!(once("assign", "k3", to("D2")).await.text("status"), "PICKED_UP");
    assert_eq!(once("assign", "k1", to("D1")).await.error(), (409, "WRONG_STATE"));
    assert_eq!(t.count("SELECT count(*) FROM order_events WHERE reason = 'ASSIGNED_BY_HAND'").await, 2);
}

#[tokio::test]
async fn a_decision_whose_client_hung_up_is_carried_out() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.order("ORD-1").await;
    let key = t.key(AccountRole::Dispatcher).await;
    let mut lock = lasting_transaction(&t.postgres).await;
    sqlx::query("SELECT 1 FROM orders FOR UPDATE").execute(&mut *lock).await.unwrap();

    let address = api.url("").trim_start_matches("http://").to_owned();
    let mut client = TcpStream::connect(address).await.unwrap();
    let body = because("the customer calls back").to_string();
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: dispatchq\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Authorization: Bearer {key}\r\nIdempotency-Key: once\r\n\r\n{body}",
        path("ORD-1", "hold"),
        body.len()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    eventually("the hold waits for the row", || async { t.count(waiting).await == 1 }).await;
    drop(client);
    // One runtime serves requests in turn, so after these answers the server has noticed the disconnect.
    for _ in 0..20 {
        assert_eq!(api.get("/healthz", "").await.status, 200);
    }
    lock.rollback().await.unwrap();
    let again = async || api.post_once(&path("ORD-1", "hold"), &key, "once", because("the customer calls back")).await;
    eventually("the answer is kept", || async { again().await.status == 200 }).await;
    assert!(again().await.replayed, "it was done a second time");
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED", "HELD_FOR_REVIEW"]);
    assert_eq!(t.status("ORD-1").await, OrderStatus::Dispatching);
}

#[tokio::test]
async fn dispatchers_acknowledge_their_own_alerts() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.sql(
        "INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at)
         VALUES ('ORD-1', 'DISPATCH_FAILED', '', '{}', dispatchq_now()),
                ('ORD-1', 'MANUAL_REFUND_REQUIRED', '', '{}', dispatchq_now())",
    )
    .await;
    let key = t.key(AccountRole::Dispatcher).await;
    let ack = async |id: u32| -> Answer {
        api.post(&format!("/api/v1/alerts/{id}/ack"), &key, json!({ "note": "assigned by hand" })).await
    };
    assert_eq!(ack(1).await.text("acked_by"), "dispatcher:test-dispatcher");
    assert_eq!(ack(2).await.error(), (403, "NOT_YOUR_ALERT"));
    assert_eq!(ack(3).await.error(), (404, "ALERT_NOT_FOUND"));
    assert_eq!(t.count("SELECT count(*) FROM alerts WHERE acked_at IS NULL").await, 1);
}
