//! Desk claims over HTTP: once per Idempotency-Key, with a record, and advisory.

use reqwest::Method;
use serde_json::{Value, json};

use super::{ORDERS, because, recorded};
use accounts::api_keys::AccountRole;
use orders::search;
use test_support::{Answer, Api, TestApp, secs};

/// Creates a RENT order without a driver. It waits for a dispatcher.
async fn let_wait(t: &TestApp, order: &str) {
    t.order_of(order, "RENT", "PAID").await;
    t.run_due().await;
}

fn path(order: &str, action: &str) -> String {
    format!("{ORDERS}/{order}/{action}")
}

#[tokio::test]
async fn a_dispatcher_takes_an_order_and_another_takes_it_over() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let_wait(&t, "WAITS").await;
    let (dispatcher, operator) = (t.key(AccountRole::Dispatcher).await, t.key(AccountRole::Operator).await);
    let viewer = t.key(AccountRole::Viewer).await;
    let shown = async || api.get(&path("WAITS", "take"), &viewer).await.body;
    assert_eq!(shown().await, json!({ "order_id": "WAITS", "taken_by": null, "ends_at": null }));

    let taken = api.post(&path("WAITS", "take"), &dispatcher, because("I call the customer")).await;
    assert_eq!((taken.status, taken.text("taken_by")), (200, "dispatcher:test-dispatcher"));
    assert_eq!(shown().await, taken.body);
    // The record names the request. The claim is advisory, so another staff member may still act on the order.
    let route = "SELECT request FROM staff_requests WHERE request LIKE '%take'";
    assert_eq!(t.texts(route).await, ["POST /api/v1/orders/{id}/take"]);
    assert_eq!(api.post(&path("WAITS", "leave"), &operator, json!({})).await.error(), (409, "NOT_ON_ORDER"));
    assert_eq!(api.post(&path("WAITS", "hold"), &operator, because("wait")).await.status, 200);

    let over = api.send(Method::POST, &path("WAITS", "take"), &operator, "", "").await;
    assert_eq!((over.status, over.text("taken_by")), (200, "operator:test-operator"), "{over:?}");
    assert_eq!(api.post(&path("WAITS", "leave"), &dispatcher, json!({})).await.error(), (409, "NOT_ON_ORDER"));
    let left = api.post(&path("WAITS", "leave"), &operator, because("done")).await;
    assert_eq!((left.status, &left.body["taken_by"]), (200, &Value::Null));
    assert_eq!(shown().await, left.body);

    // The claim expires, on the desk and in the API.
    assert_eq!(api.post(&path("WAITS", "take"), &operator, json!({})).await.status, 200);
    t.advance(secs(601)).await;
    assert_eq!(shown().await["taken_by"], Value::Null);
    assert_eq!(api.post(&path("WAITS", "leave"), &operator, json!({})).await.error(), (409, "NOT_ON_ORDER"));
    assert_eq!(
        recorded(&t).await,
        [
            "ORDER_TAKEN WAITS dispatcher:test-dispatcher I call the customer",
            "ORDER_TAKEN WAITS operator:test-operator",
            "ORDER_LEFT WAITS operator:test-operator done",
            "ORDER_TAKEN WAITS operator:test-operator",
        ]
    );
    t.assert_sound().await;
}

#[tokio::test]
async fn what_waits_for_no_person_is_not_taken() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.order("SEARCHES").await;
    t.order("ENDED").await;
    t.cancel("ENDED").await.unwrap();
    // The alert was raised late, and no step of the trip acknowledges it. Support acknowledges it.
    t.sql(
        "INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at)
         SELECT id, 'STALE_TRIP', 'v1', '{}', closed_at FROM orders WHERE id = 'ENDED'",
    )
    .await;
    assert!(search::list_to_decide(&t.app.core.db, 10).await.unwrap().is_empty());
    let key = t.key(AccountRole::Dispatcher).await;
    for (order, action, body, status, code) in [
        ("ORD-404", "take", json!({}), 404, "ORDER_NOT_FOUND"),
        ("ORD-404", "leave", json!({}), 404, "ORDER_NOT_FOUND"),
        ("SEARCHES", "take", json!({}), 409, "WRONG_STATE"),
        ("SEARCHES", "leave", json!({}), 409, "NOT_ON_ORDER"),
        ("ENDED", "take", json!({}), 409, "ORDER_FINISHED"),
        ("SEARCHES", "take", because(&"x".repeat(501)), 422, "INVALID"),
        ("SEARCHES", "take", json!({ "driver_id": "D1" }), 422, "INVALID"),
        ("a:b", "take", json!({}), 422, "INVALID"),
    ] {
        let answer = api.post(&path(order, action), &key, body).await;
        assert_eq!(answer.error(), (status, code), "{action} {order}: {answer:?}");
    }
    assert_eq!(api.get(&path("ORD-404", "take"), &key).await.error(), (404, "ORDER_NOT_FOUND"));
    assert_eq!(t.count("SELECT count(*) FROM desk_takes").await, 0);
    assert_eq!(recorded(&t).await, [""; 0]);
}

#[tokio::test]
async fn repeated_take_returns_the_first_answer() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let_wait(&t, "WAITS").await;
    let key = t.key(AccountRole::Dispatcher).await;
    let once = async |action: &str, idempotency: &str| -> Answer {
        api.post_once(&path("WAITS", action), &key, idempotency, because("a test")).await
    };
    let taken = once("take", "k1").await;
    assert_eq!((taken.status, taken.replayed), (200, false));
    assert_eq!(once("take", "k1").await, Answer { replayed: true, ..taken.clone() });
    assert_eq!(once("leave", "k1").await.error(), (422, "IDEMPOTENCY_KEY_REUSED"));

    // The process that made the claim died before it answered. The claim is not made a second time.
    let forget = "UPDATE idempotency_keys SET status = NULL, body = NULL";
    t.sql(forget).await;
    t.advance(secs(61)).await;
    assert_eq!(once("take", "k1").await.body, taken.body, "it ends when it would have ended");
    let left = once("leave", "k2").await;
    assert_eq!((left.status, &left.body["taken_by"]), (200, &Value::Null));
    t.sql(forget).await;
    t.advance(secs(61)).await;
    assert_eq!(once("leave", "k2").await.body, left.body);
    assert_eq!(
        recorded(&t).await,
        ["ORDER_TAKEN WAITS dispatcher:test-dispatcher a test", "ORDER_LEFT WAITS dispatcher:test-dispatcher a test"]
    );
}

/// The claim and its record are written together or not at all.
#[tokio::test]
async fn a_take_whose_record_cannot_be_written_is_none() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let_wait(&t, "WAITS").await;
    let key = t.key(AccountRole::Dispatcher).await;
    t.sql("ALTER TABLE staff_actions RENAME COLUMN reason TO cause").await;
    let refused = api.post(&path("WAITS", "take"), &key, json!({})).await;
    assert!(refused.status >= 500, "{refused:?}");
    assert_eq!(t.count("SELECT count(*) FROM desk_takes").await, 0);
}
