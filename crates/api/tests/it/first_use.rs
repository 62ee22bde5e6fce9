//! The first requests of a new API user: creating an order, finding it, and answering it as a driver.

use reqwest::{Method, header::LOCATION};
use serde_json::{Value, json};

use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp, ride, secs};

const ORDERS: &str = "/api/v1/orders";

/// Returns the ids of the orders that a key lists.
async fn listed(api: &Api, key: &str, query: &str) -> Vec<String> {
    let answer = api.get(&format!("{ORDERS}{query}"), key).await;
    assert_eq!(answer.status, 200, "{query}: {answer:?}");
    let orders = answer.body["orders"].as_array().unwrap();
    orders.iter().map(|order| order["order_id"].as_str().unwrap().to_owned()).collect()
}

/// Sends a creation that must return 201, and returns its `Location`.
async fn location(api: &Api, path: &str, key: &str, idempotency_key: Option<&str>, body: &Value) -> String {
    let mut request = api.client.request(Method::POST, api.url(path)).bearer_auth(key).json(body);
    if let Some(idempotency_key) = idempotency_key {
        request = request.header("idempotency-key", idempotency_key);
    }
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 201, "{path} {body}");
    answer.headers()[LOCATION].to_str().unwrap().to_owned()
}

// Rule U14: The answer to a creation has a Location that can be requested, also when the creation is repeated.
// Rule U14: A producer can list its own orders, open and closed, but not those of other producers.
// Rule U2: The order shows its pickup to its producer, to staff, and to its driver.
// Rule U8: The pickup has one name and the customer has one name; the older names are still read.
// Rule U8: Every list of orders can show open orders only, or closed ones too.
#[tokio::test]
async fn new_user_creates_finds_and_serves_orders() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0), ("D2", 90_000.0)]).await;
    let shop = t.key_named("shop", AccountRole::Producer, None).await;
    let other = t.key_named("other", AccountRole::Producer, None).await;
    let viewer = t.key(AccountRole::Viewer).await;
    let operator = t.key(AccountRole::Operator).await;
    let (driver, stranger) = (t.driver_key("D1").await, t.driver_key("D2").await);

    let first = location(&api, ORDERS, &shop, None, &ride()).await;
    let pickup = json!({ "latitude": -6.2088, "longitude": 106.8456 });
    assert_eq!(api.get(&first, &shop).await.body["pickup"], pickup);
    t.advance(secs(1)).await;
    for key in ["once", "once"] {
        let named = json!({ "order_id": "ORD-2", "service_type": "RIDE", "pickup": pickup });
        assert_eq!(location(&api, ORDERS, &shop, Some(key), &named).await, "/api/v1/orders/ORD-2");
        t.advance(secs(1)).await;
    }
    let hired = json!({ "id": "D9", "service_types": ["RIDE"], "latitude": 0.0, "longitude": 0.0, "reason": "new" });
    assert_eq!(location(&api, "/api/v1/drivers", &operator, None, &hired).await, "/api/v1/drivers/D9");
    let shown = api.get("/api/v1/drivers/D9", &operator).await.body;
    assert_eq!((&shown["latitude"], &shown["longitude"]), (&shown["lat"], &shown["lng"]));
    let plan = json!({ "filter": {}, "action": "discard", "reason": "a test", "dry_run": true });
    let plan = location(&api, "/api/v1/admin/dead/actions", &operator, None, &plan).await;
    assert_eq!(api.get(&plan, &operator).await.status, 200, "{plan}");

    // The older names have the same meaning, and the API reads every field.
    let old = json!({ "order_id": "ORD-3", "service_type": "RIDE", "pickup_location": pickup, "user_id": "CUS-1" });
    let answer = api.client.post(api.url(ORDERS)).bearer_auth(&other).json(&old).send().await.unwrap();
    assert!(answer.status() == 201 && !answer.headers().contains_key("x-ignored-fields"), "{answer:?}");
    let body: Value = answer.json().await.unwrap();
    assert_eq!((&body["pickup"], &body["customer_id"]), (&pickup, &json!("CUS-1")));
    for check in [
        json!({ "pickup": pickup, "service_type": "RIDE", "customer_id": "CUS-1" }),
        json!({ "pickup_location": pickup, "service_type": "RIDE", "user_id": "CUS-1" }),
    ] {
        let check = api.client.post(api.url("/api/v1/dispatcher/availability-check")).bearer_auth(&other).json(&check);
        let answer = check.send().await.unwrap();
        assert!(answer.status() == 200 && !answer.headers().contains_key("x-ignored-fields"), "{answer:?}");
    }

    // A driver answers the oldest order. The driver sees the pickup while the order is assigned to the driver.
    t.run_due().await;
    let offers = api.get("/api/v1/drivers/D1/offers", &driver).await.body["offers"].clone();
    let offer = &offers[0];
    assert_eq!((&offer["pickup"], &offer["pickup_latitude"]), (&pickup, &pickup["latitude"]));
    let path = format!("{ORDERS}/{}", offer["order_id"].as_str().unwrap());
    let answer = json!({ "driver_id": "D1", "offer_id": offer["offer_id"] });
    assert_eq!(api.post(&format!("{path}/accept"), &driver, answer).await.body["pickup"], pickup);
    for key in [&driver, &shop, &viewer] {
        assert_eq!(api.get(&path, key).await.body["pickup"], pickup);
    }
    assert_eq!(api.get(&path, &stranger).await.error(), (404, "ORDER_NOT_FOUND"));
    assert_eq!(api.post(&format!("{path}/pickup"), &driver, json!({})).await.body["pickup"], pickup);
    let done = api.post(&format!("{path}/complete"), &driver, json!({})).await.body;
    assert_eq!((&done["status"], &done["pickup"]), (&json!("COMPLETED"), &Value::Null));
    assert_eq!(api.get(&path, &driver).await.body["pickup"], Value::Null);
    assert_eq!(api.get(&path, &shop).await.body["pickup"], pickup);

    // The completed order is the older order of the producer.
    let completed = path.trim_start_matches("/api/v1/orders/").to_owned();
    assert_eq!(listed(&api, &shop, "").await, ["ORD-2".to_owned(), completed.clone()]);
    assert_eq!(listed(&api, &shop, "?closed=false").await, ["ORD-2"]);
    assert_eq!(listed(&api, &shop, "?status=COMPLETED").await, std::slice::from_ref(&completed));
    assert_eq!(listed(&api, &shop, "?q=ORD-3").await, Vec::<String>::new());
    assert_eq!(listed(&api, &shop, "?customer=CUS-1").await, Vec::<String>::new());
    assert_eq!(listed(&api, &other, "").await, ["ORD-3"]);
    assert_eq!(listed(&api, &viewer, "").await, ["ORD-3", "ORD-2"]);
    assert_eq!(listed(&api, &viewer, "?closed=true").await, ["ORD-3".to_owned(), "ORD-2".to_owned(), completed]);
    let page = api.get(&format!("{ORDERS}?closed=true&limit=2"), &viewer).await;
    assert_eq!(page.body["closed"], "within");
    let rest = format!("?closed=true&limit=2&cursor={}", page.text("next_cursor"));
    assert_eq!(listed(&api, &viewer, &rest).await.len(), 1);
    t.advance(secs(32 * 86_400)).await;
    assert_eq!(listed(&api, &viewer, "?closed=true").await, Vec::<String>::new(), "31 days back");
    assert_eq!(listed(&api, &viewer, "?closed=false").await, ["ORD-3", "ORD-2"], "open ones of any age");
    assert_eq!(listed(&api, &shop, "").await.len(), 2, "a producer's own of any age");
}

// Rule U10: The answer to a caller with a wrong key states that the key is not valid. The answer to a caller without a
// key states that one is needed.
// Rule U10: Errors about a body name no Rust type.
// Rule U9: Operators can cancel and reschedule jobs over HTTP. Each change is recorded, and each refusal states its
// reason.
// Rule U9: Over HTTP, staff can list partners, and operators can change them.
#[tokio::test]
async fn wrong_requests_are_refused_in_plain_words() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    let (operator, viewer) = (t.key(AccountRole::Operator).await, t.key(AccountRole::Viewer).await);
    let unknown = format!("dq_{}", "0".repeat(64));
    for (key, words) in [
        ("", "the request needs a key"),
        ("dq_0000", "the key is not valid: a key is dq_ and 64 hexadecimal digits"),
        (unknown.as_str(), "the key is not valid: it is unknown, expired or revoked"),
    ] {
        let refused = api.get(ORDERS, key).await;
        assert_eq!(refused.error(), (401, "UNAUTHENTICATED"));
        assert!(refused.text("message").starts_with(words), "{refused:?}");
    }
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.cancel("ORD-1").await.unwrap();
    for (path, body) in [
        (ORDERS, json!({ "service_type": "RIDE", "pickup": 5 })),
        (ORDERS, json!({ "service_type": ["RIDE"], "pickup": { "latitude": 0, "longitude": 0 } })),
        (ORDERS, json!({ "service_type": "RIDE", "pickup": { "latitude": "x", "longitude": 0 } })),
        (ORDERS, json!([])),
        ("/api/v1/orders/ORD-1/payment", json!({ "event_id": 5, "payment_status": "PAID" })),
    ] {
        let refused = api.post(path, &shop, body.clone()).await;
        assert!((400..500).contains(&refused.status), "{body}: {refused:?}");
        let message = refused.text("message");
        for term in ["deserialize", "f64", "struct", "enum", "variant", "invalid type", "map", "sequence"] {
            assert!(!message.contains(term), "{term}: {message}");
        }
    }

    t.order("ORD-2").await;
    t.advance(secs(1)).await;
    let job = |verb: &str, id: &str| format!("/api/v1/admin/jobs/{id}/{verb}");
    let because = json!({ "reason": "a test" });
    let asked_for = api.post(&job("cancel", "lifetime:ORD-2"), &operator, because.clone()).await;
    assert_eq!(asked_for.error(), (409, "JOB_WOULD_BE_PUT_BACK"), "{asked_for:?}");
    let late = json!({ "in_sec": 7200, "reason": "a test" });
    let late = api.post(&job("reschedule", "lifetime:ORD-2"), &operator, late).await;
    assert_eq!(late.error(), (409, "JOB_WOULD_BE_MOVED_BACK"), "{late:?}");
    let absent = api.post(&job("cancel", "lifetime:ORD-9"), &operator, because.clone()).await;
    assert_eq!(absent.error(), (404, "JOB_NOT_FOUND"), "{absent:?}");
    let moved = json!({ "in_sec": 30, "reason": "a test" });
    let moved = api.post(&job("reschedule", "dispatch:ORD-2:1"), &operator, moved).await;
    assert_eq!((moved.status, moved.text("result")), (200, "MOVED"), "{moved:?}");
    for body in [json!({ "reason": "a test" }), json!({ "in_sec": 1, "at": "2030-01-02T00:00:00Z", "reason": "x" })] {
        let refused = api.post(&job("reschedule", "dispatch:ORD-2:1"), &operator, body).await;
        assert_eq!(refused.error(), (422, "INVALID"), "{refused:?}");
    }
    let forbidden = api.post(&job("cancel", "dispatch:ORD-2:1"), &viewer, because).await;
    assert_eq!(forbidden.error(), (403, "FORBIDDEN"));
    let recorded = "SELECT concat_ws(' ', action, subject, actor, reason) FROM audit_staff_actions ORDER BY id";
    assert_eq!(
        t.texts(recorded).await,
        ["JOB_RESCHEDULED dispatch:ORD-2:1 to 2030-01-01T08:00:31.000Z operator:test-operator a test"]
    );

    assert_eq!(api.get("/api/v1/partners", &viewer).await.body, json!({ "partners": [] }));
    let change = json!({ "polling_percent": 50, "reason": "a test" }).to_string();
    let unknown = api.send(Method::PATCH, "/api/v1/partners/bbd", &operator, "", change.clone()).await;
    assert_eq!(unknown.error(), (404, "PARTNER_NOT_FOUND"));
    assert_eq!(api.send(Method::PATCH, "/api/v1/partners/bbd", &viewer, "", change).await.error(), (403, "FORBIDDEN"));
}
