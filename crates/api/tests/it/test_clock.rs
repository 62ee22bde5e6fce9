//! `POST /dev/advance`: the test clock of `dispatchq dev`.

use serde_json::json;

use accounts::api_keys::AccountRole;
use test_support::{Answer, Api, TestApp, ride_with_id};

async fn advance(api: &Api, key: &str, order: &str, to: &str) -> Answer {
    api.post("/dev/advance", key, json!({ "order": order, "to": to })).await
}

#[tokio::test]
async fn usual_api_has_no_test_clock() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.order("ORD-1").await;
    let admin = t.key(AccountRole::Admin).await;
    assert_eq!(advance(&api, &admin, "ORD-1", "lifetime").await.status, 404);
    assert_eq!(advance(&api, "", "ORD-1", "lifetime").await.status, 404);
}

#[tokio::test]
async fn test_clock_answers_with_the_moved_order() {
    let t = TestApp::start().await;
    let api = Api::with_test_clock(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    assert_eq!(api.post("/api/v1/orders", &shop, ride_with_id("ORD-1")).await.status, 201);
    let moved = advance(&api, &shop, "ORD-1", "lifetime").await;
    assert_eq!(moved.status, 200, "{moved:?}");
    assert_eq!(moved.body["lifetime_deadline"], "2030-01-01T08:00:00Z");
    t.run_due().await;
    assert_eq!(api.get("/api/v1/orders/ORD-1", &shop).await.body["status"], "CANCELLED_BY_SYSTEM");
}

#[tokio::test]
async fn test_clock_refuses_what_it_cannot_move() {
    let t = TestApp::start().await;
    let api = Api::with_test_clock(&t.app).await;
    let (shop, viewer) = (t.key(AccountRole::Producer).await, t.key(AccountRole::Viewer).await);
    assert_eq!(api.post("/api/v1/orders", &shop, ride_with_id("ORD-1")).await.status, 201);
    t.sql("UPDATE orders SET owner = 'other' WHERE id = 'ORD-1'").await;
    assert_eq!(advance(&api, &shop, "ORD-1", "lifetime").await.error(), (404, "ORDER_NOT_FOUND"));

    let admin = t.key(AccountRole::Admin).await;
    for order in ["NONE", "not an id"] {
        assert_eq!(advance(&api, &admin, order, "lifetime").await.error(), (404, "ORDER_NOT_FOUND"));
    }
    assert_eq!(advance(&api, &admin, "ORD-1", "pickup_at").await.error(), (409, "WRONG_STATE"));
    assert_eq!(advance(&api, &admin, "ORD-1", "tomorrow").await.error(), (422, "INVALID"));
    assert_eq!(advance(&api, &viewer, "ORD-1", "lifetime").await.error(), (403, "FORBIDDEN"));
    assert_eq!(advance(&api, "", "ORD-1", "lifetime").await.status, 401);
}
