//! An order belongs to the producer that created it.

use serde_json::json;

use accounts::{api_keys::AccountRole, key_admin};
use test_support::{Answer, Api, TestApp, create_key, ride_with_id, secs};

const NOT_FOUND: (u16, &str) = (404, "ORDER_NOT_FOUND");

/// Returns the answer to this key for each request about an order, with the name of the request.
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

// Fault S11
#[tokio::test]
async fn a_producer_sees_and_changes_its_own_orders_only() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let (_, shop) = create_key(&t, "shop", AccountRole::Producer, None).await;
    let (_, other) = create_key(&t, "other", AccountRole::Producer, None).await;
    assert_eq!(api.post("/api/v1/orders", &shop, ride_with_id("ORD-1")).await.status, 201);
    t.sql("UPDATE orders SET job_id = 'JOB-1'").await;
    let before = t.dump().await;
    for (way, answer) in ask(&api, &other, "ORD-1").await {
        assert_eq!(answer.error(), NOT_FOUND, "{way}");
        // The answer is identical to the answer for an order that does not exist.
        let absent = api.get("/api/v1/orders/ORD-404", &other).await;
        assert_eq!(answer.without_request(), absent.without_request(), "{way}");
    }
    let found = api.get("/api/v1/orders?job_id=JOB-1", &other).await;
    assert_eq!((found.status, &found.body["orders"]), (200, &json!([])));
    assert_eq!(api.post("/api/v1/orders", &other, ride_with_id("ORD-1")).await.error(), (409, "ORDER_EXISTS"));
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

// Fault S11
#[tokio::test]
async fn new_key_of_same_name_owns_orders() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let (_, old) = create_key(&t, "shop", AccountRole::Producer, None).await;
    assert_eq!(api.post("/api/v1/orders", &old, ride_with_id("ORD-1")).await.status, 201);
    let (_, new) = key_admin::rotate_key(&t.app.core.db, "shop", secs(60), None).await.unwrap();
    assert_eq!(api.get("/api/v1/orders/ORD-1", &new).await.status, 200);
}

// Rule F47: In the timeline of its order, a producer sees `staff` instead of names and no free text of other people.
// Staff see everything.
#[tokio::test]
async fn producer_reads_no_staff_names_in_timelines() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let (_, shop) = create_key(&t, "shop", AccountRole::Producer, None).await;
    let mut paid = ride_with_id("ORD-1");
    (paid["payment_status"], paid["amount_minor"], paid["currency"]) = (json!("PAID"), json!(5), json!("IDR"));
    assert_eq!(api.post("/api/v1/orders", &shop, paid).await.status, 201);
    t.run_due().await;
    let eve = t.key_named("EVE", AccountRole::Admin, None).await;
    let offer = t.live_offer("ORD-1").await;
    let decline = json!({ "driver_id": "D1", "offer_id": offer.id, "reason": "PRIVATE of the driver" });
    assert_eq!(api.post("/api/v1/orders/ORD-1/decline", &t.driver_key("D1").await, decline).await.status, 200);
    let own = json!({ "reason": "ours" });
    for (verb, caller, body) in [
        ("hold", &eve, json!({ "reason": "PRIVATE of staff" })),
        ("resume", &eve, json!({ "reason": "PRIVATE of staff" })),
        ("cancel", &shop, own),
        ("refund", &eve, json!({ "action": "start", "note": "PRIVATE of staff" })),
        ("refund", &eve, json!({ "action": "done", "note": "PRIVATE of staff" })),
    ] {
        let answer = api.post(&format!("/api/v1/orders/ORD-1/{verb}"), caller, body).await;
        assert_eq!(answer.status, 200, "{verb}: {answer:?}");
        if *caller == shop {
            assert!(!answer.body.to_string().contains("PRIVATE"), "{answer:?}");
        }
    }
    let read = async |key: &str| api.get("/api/v1/orders/ORD-1/timeline", key).await.body;
    let shown = read(&shop).await;
    for hidden in ["EVE", "admin", "PRIVATE", "driver:D1"] {
        assert!(!shown.to_string().contains(hidden), "{hidden}: {shown}");
    }
    let lines = shown["events"].as_array().unwrap();
    let find = |reason: &str| lines.iter().find(|line| line["reason"] == reason).unwrap();
    assert_eq!(
        (&find("HELD_FOR_REVIEW")["actor"], &find("HELD_FOR_REVIEW")["detail"]),
        (&json!("staff"), &json!(null))
    );
    assert_eq!((&find("REFUNDED")["actor"], &find("REFUNDED")["detail"]), (&json!("staff"), &json!(null)));
    assert_eq!(find("CANCELLED_BY_USER")["actor"], "producer:shop", "its own part has its name");
    assert_eq!(find("CANCELLED_BY_USER")["detail"], "ours");
    assert_eq!(find("ATTEMPT_STARTED")["actor"], "system");
    let all = read(&t.key(AccountRole::Support).await).await.to_string();
    for told in ["EVE", "PRIVATE of staff", "PRIVATE of the driver", "driver:D1"] {
        assert!(all.contains(told), "{told}: {all}");
    }
}

// Fault S11
#[tokio::test]
async fn one_installation_may_share_all_orders() {
    let t = TestApp::with(|config| config.http.producers_share_orders = true).await;
    let api = Api::start(&t.app).await;
    let (_, shop) = create_key(&t, "shop", AccountRole::Producer, None).await;
    let (_, other) = create_key(&t, "other", AccountRole::Producer, None).await;
    assert_eq!(api.post("/api/v1/orders", &shop, ride_with_id("ORD-1")).await.status, 201);
    for (way, answer) in ask(&api, &other, "ORD-1").await {
        assert_eq!(answer.status, 200, "{way}: {answer:?}");
    }
}

// Fault S11
#[tokio::test]
async fn sql_orders_have_the_named_owner() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let (_, shop) = create_key(&t, "shop", AccountRole::Producer, None).await;
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
