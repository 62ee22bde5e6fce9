//! An order belongs to the producer that created it.

use dispatch::accounts::{api_keys::AccountRole, key_admin};
use serde_json::json;

use super::{key, ride};
use crate::support::{Answer, Api, TestApp, secs};

const NOT_FOUND: (u16, &str) = (404, "ORDER_NOT_FOUND");

/// What a key is answered on each way to an order; the way is named first.
async fn ask(api: &Api, key: &str, order: &str) -> Vec<(&'static str, Answer)> {
    let path = format!("/api/v1/orders/{order}");
    let pay = json!({ "event_id": "EV-1", "payment_status": "PAID" });
    vec![
        ("get", api.get(&path, key).await),
        ("timeline", api.get(&format!("{path}/timeline"), key).await),
        ("pay", api.post(&format!("{path}/payment"), key, pay).await),
        ("cancel", api.post(&format!("{path}/cancel"), key, json!({})).await),
    ]
}

#[tokio::test]
async fn s11_a_producer_sees_and_changes_its_own_orders_only() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let (_, shop) = key(&t, "shop", AccountRole::Producer, None).await;
    let (_, other) = key(&t, "other", AccountRole::Producer, None).await;
    assert_eq!(api.post("/api/v1/orders", &shop, ride("ORD-1")).await.status, 201);
    t.sql("UPDATE orders SET job_id = 'JOB-1'").await;
    let before = t.dump().await;
    for (way, answer) in ask(&api, &other, "ORD-1").await {
        assert_eq!(answer.error(), NOT_FOUND, "{way}");
        // As of an order that is not there, to the letter.
        let absent = api.get("/api/v1/orders/ORD-404", &other).await;
        assert_eq!(answer.without_request(), absent.without_request(), "{way}");
    }
    let found = api.get("/api/v1/orders?job_id=JOB-1", &other).await;
    assert_eq!((found.status, &found.body["orders"]), (200, &json!([])));
    assert_eq!(api.post("/api/v1/orders", &other, ride("ORD-1")).await.error(), (409, "ORDER_EXISTS"));
    assert_eq!(t.dump().await, before, "nothing changed");

    let found = api.get("/api/v1/orders?job_id=JOB-1", &shop).await;
    assert_eq!(found.body["orders"][0]["order_id"], "ORD-1");
    for (way, answer) in ask(&api, &shop, "ORD-1").await {
        assert_eq!(answer.status, 200, "{way}: {answer:?}");
    }
    for role in [AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator, AccountRole::Admin] {
        assert_eq!(api.get("/api/v1/orders/ORD-1", &t.key(role).await).await.status, 200, "{role:?}");
    }
}

#[tokio::test]
async fn s11_a_new_key_of_the_same_name_has_the_orders() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let (_, old) = key(&t, "shop", AccountRole::Producer, None).await;
    assert_eq!(api.post("/api/v1/orders", &old, ride("ORD-1")).await.status, 201);
    let (_, new) = key_admin::rotate_key(&t.app.db, "shop", secs(60), None).await.unwrap();
    assert_eq!(api.get("/api/v1/orders/ORD-1", &new).await.status, 200);
}

#[tokio::test]
async fn s11_one_installation_may_share_all_orders() {
    let t = TestApp::with(|config| config.http.producers_share_orders = true).await;
    let api = Api::start(&t.app).await;
    let (_, shop) = key(&t, "shop", AccountRole::Producer, None).await;
    let (_, other) = key(&t, "other", AccountRole::Producer, None).await;
    assert_eq!(api.post("/api/v1/orders", &shop, ride("ORD-1")).await.status, 201);
    for (way, answer) in ask(&api, &other, "ORD-1").await {
        assert_eq!(answer.status, 200, "{way}: {answer:?}");
    }
}

#[tokio::test]
async fn s11_orders_created_in_sql_have_the_owner_that_is_named() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let (_, shop) = key(&t, "shop", AccountRole::Producer, None).await;
    let create = |id: &str, more: &str| format!("SELECT dispatchq_create_order('{id}', 'RIDE', -6.2, 106.8{more})");
    t.sql(&create("NAMED", ", owner => 'shop'")).await;
    t.sql(&create("BY-ACTOR", ", actor => 'producer:shop'")).await;
    t.sql(&create("OF-NONE", "")).await;
    t.sql(&create("OF-OTHER", ", actor => 'producer:shop', owner => 'other'")).await;
    for (order, status) in [("NAMED", 200), ("BY-ACTOR", 200), ("OF-NONE", 404), ("OF-OTHER", 404)] {
        assert_eq!(api.get(&format!("/api/v1/orders/{order}"), &shop).await.status, status, "{order}");
    }
    assert_eq!(api.get("/api/v1/orders/OF-NONE", &t.key(AccountRole::Support).await).await.status, 200);
}
