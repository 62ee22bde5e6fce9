//! Permissions of roles, and requests that are malformed.

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use accounts::{
    api_keys::{self, AccountRole},
    key_admin,
};
use model::decide::actions;
use test_support::{Answer, Api, TestApp, http_client, ride};

#[tokio::test]
async fn a_request_needs_a_living_key() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let (row, revoked) =
        key_admin::create_permanent_key(&t.app.core.db, "old", AccountRole::Admin, None).await.unwrap();
    assert_eq!(api.post("/api/v1/orders", &revoked, ride()).await.status, 201);
    assert!(api_keys::revoke_key(&t.app.core.db, row.id).await.unwrap());
    // A key that was accepted is cached for a second.
    tokio::time::sleep(test_support::millis(1_100)).await;
    for key in ["", "dq_unknown", revoked.as_str()] {
        let answer = api.post("/api/v1/orders", key, ride()).await;
        assert_eq!(answer.error(), (401, "UNAUTHENTICATED"), "key '{key}'");
    }
    assert_eq!(t.count("SELECT count(*) FROM orders").await, 1);
}

#[tokio::test]
async fn a_role_may_do_its_own_work_only() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.order("ORD-1").await;
    let driver = t.driver_key("D1").await;
    let offer = json!({ "driver_id": "D1", "offer_id": Uuid::nil() });
    for (role, creates, cancels, answers, reads) in [
        (AccountRole::Producer, 201, 200, 403, 200),
        (AccountRole::Dispatcher, 201, 200, 403, 200),
        (AccountRole::Support, 201, 200, 403, 200),
        (AccountRole::Operator, 403, 403, 403, 200),
        (AccountRole::Admin, 201, 200, 404, 200),
    ] {
        let key = t.key(role).await;
        assert_eq!(api.post("/api/v1/orders", &key, ride()).await.status, creates, "{role:?} creates");
        assert_eq!(api.post("/api/v1/orders/ORD-1/cancel", &key, json!({})).await.status, cancels, "{role:?} cancels");
        assert_eq!(
            api.post("/api/v1/orders/ORD-1/accept", &key, offer.clone()).await.status,
            answers,
            "{role:?} accepts"
        );
        assert_eq!(api.get("/api/v1/orders/ORD-1", &key).await.status, reads, "{role:?} reads");
        assert_eq!(api.get("/api/v1/orders/ORD-1/timeline", &key).await.status, reads, "{role:?} reads the timeline");
    }
    assert_eq!(api.post("/api/v1/orders", &driver, ride()).await.error(), (403, "FORBIDDEN"));
    assert_eq!(api.post("/api/v1/orders/ORD-1/cancel", &driver, json!({})).await.error(), (403, "FORBIDDEN"));
    assert_eq!(api.get("/api/v1/orders/ORD-1", &driver).await.error(), (404, "ORDER_NOT_FOUND"));
}

#[tokio::test]
async fn a_driver_acts_for_itself_only() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let offer = t.live_offer("ORD-1").await;
    let (own, other) = (t.driver_key("D1").await, t.driver_key("D2").await);
    let for_d1 = json!({ "driver_id": "D1", "offer_id": offer.id });
    assert_eq!(api.post("/api/v1/orders/ORD-1/accept", &other, for_d1.clone()).await.error(), (403, "FORBIDDEN"));
    assert_eq!(api.post("/api/v1/orders/ORD-1/decline", &other, for_d1.clone()).await.error(), (403, "FORBIDDEN"));
    let foreign = json!({ "driver_id": "D2", "offer_id": offer.id });
    assert_eq!(api.post("/api/v1/orders/ORD-1/accept", &other, foreign).await.error(), (404, "ORDER_NOT_FOUND"));

    assert_eq!(api.post("/api/v1/orders/ORD-1/accept", &own, for_d1).await.status, 200);
    assert_eq!(api.post("/api/v1/orders/ORD-1/pickup", &other, json!({})).await.error(), (404, "ORDER_NOT_FOUND"));
    assert_eq!(api.get("/api/v1/orders/ORD-1", &other).await.status, 404);
    assert_eq!(api.get("/api/v1/orders/ORD-1", &own).await.text("driver_id"), "D1");
    t.assert_sound().await;
}

// Rule F39: On every operation, a driver's key gets the same 404 for another driver's order and for an order that does
// not exist.
#[tokio::test]
async fn other_drivers_orders_look_like_none() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let other = t.driver_key("D2").await;
    for order in ["ASKED", "TAKEN", "OVER"] {
        t.order(order).await;
        t.run_due().await;
        match order {
            "ASKED" => drop(t.decline_offer(order).await),
            _ => {
                t.accept_offer(order).await;
                if order == "TAKEN" {
                    t.carry_out(order, "D1").await;
                }
            }
        }
    }
    t.order("LIVE").await;
    t.act("OVER", |s| actions::cancel_by_driver(s, &"D1".into(), None)).await.unwrap();
    t.cancel("OVER").await.unwrap();
    t.run_due().await;
    let offers = t.texts("SELECT id::text FROM offers").await;
    assert!(offers.len() >= 4, "{offers:?}");
    let unknown = [uuid::Uuid::nil().to_string()];
    let ask = async |order: &str, offer: &str| -> Vec<Answer> {
        let path = format!("/api/v1/orders/{order}");
        let (answer, step) = (json!({ "driver_id": "D2", "offer_id": offer }), json!({}));
        let mut answers = vec![api.get(&path, &other).await, api.get(&format!("{path}/timeline"), &other).await];
        for (verb, body) in [
            ("accept", &answer),
            ("decline", &answer),
            ("pickup", &step),
            ("complete", &step),
            ("driver-cancel", &step),
        ] {
            answers.push(api.post(&format!("{path}/{verb}"), &other, body.clone()).await);
        }
        answers
    };
    let before = t.dump().await;
    let none: Vec<Value> = ask("NONE", &unknown[0]).await.iter().map(Answer::without_request).collect();
    assert!(none.iter().all(|answer| answer["error_code"] == "ORDER_NOT_FOUND"), "{none:?}");
    for order in ["ASKED", "TAKEN", "OVER", "LIVE"] {
        for offer in offers.iter().chain(&unknown) {
            let found: Vec<Value> = ask(order, offer).await.iter().map(Answer::without_request).collect();
            assert_eq!(found, none, "{order}, {offer}");
        }
    }
    assert_eq!(t.dump().await, before);
}

#[tokio::test]
async fn a_new_order_is_checked_at_the_edge() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    let with = |field: &str, value: serde_json::Value| {
        let mut order = ride();
        order[field] = value;
        order
    };
    for (what, order) in [
        ("an unknown service type", with("service_type", json!("TELEPORT"))),
        ("no place on earth", with("pickup", json!({ "latitude": 91.0, "longitude": 0.0 }))),
        ("half a place", with("pickup", json!({ "latitude": 1.0 }))),
        ("a bad id", with("order_id", json!("a:b"))),
        ("an id too long", with("order_id", json!("x".repeat(65)))),
        ("a bad payment status", with("payment_status", json!("paid?"))),
        ("a bad currency", with("currency", json!("rupiah"))),
        ("an endless area", with("area_id", json!("x".repeat(65)))),
        ("a number as text", with("amount_minor", json!("1000"))),
        ("no service type", json!({ "pickup": { "latitude": 0.0, "longitude": 0.0 } })),
        ("nothing", json!({})),
        ("a list", json!([])),
    ] {
        let answer = api.post("/api/v1/orders", &key, order).await;
        assert_eq!(answer.error(), (422, "INVALID"), "{what}: {answer:?}");
        assert!(!answer.text("message").is_empty());
    }
    let unknown = api.post("/api/v1/orders", &key, with("service_type", json!("TELEPORT"))).await;
    assert!(unknown.text("message").contains("RIDE"), "names what is known: {unknown:?}");
    assert_eq!(t.count("SELECT count(*) FROM orders").await, 0);
}

#[tokio::test]
async fn unknown_requests_get_our_error_form() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    let post = |body: String| api.send(Method::POST, "/api/v1/orders", &key, "", body);
    assert_eq!(post("service_type=RIDE".to_owned()).await.error(), (400, "MALFORMED"));
    assert_eq!(post(ride().to_string()[..20].to_owned()).await.error(), (400, "MALFORMED"));
    assert_eq!(post(format!("{}{}", ride(), " ".repeat(70_000))).await.error(), (413, "TOO_LARGE"));
    let admin = t.key(AccountRole::Admin).await;
    let huge = format!("{{\"driver_id\": \"{}\"}}", "x".repeat(70_000));
    let accept = api.send(Method::POST, "/api/v1/orders/ORD-1/accept", &admin, "", huge).await;
    assert_eq!(accept.error(), (413, "TOO_LARGE"));
    assert_eq!(api.get("/api/v1/nothing", &key).await.error(), (404, "NOT_FOUND"));
    assert_eq!(api.send(Method::PUT, "/api/v1/orders", &key, "", "").await.error(), (405, "METHOD_NOT_ALLOWED"));
    assert_eq!(api.get("/api/v1/orders/a:b", &key).await.error(), (422, "INVALID"));
    assert_eq!(api.get("/api/v1/orders/ORD-404", &key).await.error(), (404, "ORDER_NOT_FOUND"));
}

#[tokio::test]
async fn invalid_path_gets_our_error_form() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    let answer = api.get("/api/v1/orders/%FF", &key).await;
    assert_eq!(answer.status, 400);
    assert!(answer.body["error_code"].is_string(), "{answer:?}");
}

#[tokio::test]
async fn unknown_field_is_accepted_and_named() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    let send = async |path: &str, body: serde_json::Value| {
        let request = http_client().post(api.url(path)).bearer_auth(&key).json(&body);
        let answer = request.send().await.unwrap();
        let ignored = answer.headers().get("x-ignored-fields").map(|names| names.to_str().unwrap().to_owned());
        (answer.status().as_u16(), ignored)
    };
    let mut order = ride();
    (order["order_id"], order["loyalty_levle"], order["pickup"]["street"]) =
        (json!("ORD-1"), json!("ELITE"), json!("x"));
    assert_eq!(send("/api/v1/orders", order).await, (201, Some("loyalty_levle".to_owned())));
    assert_eq!(send("/api/v1/orders", ride()).await, (201, None));
    let place = json!({ "latitude": -6.2, "longitude": 106.8, "accuracy_m": 5 });
    let question = json!({ "pickup_location": place, "service_type": "RIDE", "app_version": "7.1" });
    assert_eq!(send("/api/v1/dispatcher/availability-check", question).await, (200, Some("app_version".to_owned())));
    assert_eq!(
        send("/api/v1/orders/ORD-1/cancel", json!({ "reason": "late", "rating": 1 })).await,
        (200, Some("rating".to_owned()))
    );
    // A bulk action refuses an unknown field, because ignoring it could change the action: docs/design/http-api.md.
    let operator = t.key(AccountRole::Operator).await;
    let flag = json!({ "enabled": true, "shadow_mod": true }).to_string();
    let refused = api.send(Method::PUT, "/api/v1/admin/dispatcher/flag", &operator, "", flag).await;
    assert_eq!(refused.error(), (422, "INVALID"));
}
