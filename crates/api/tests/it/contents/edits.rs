//! Changes to the contents of orders with PATCH.

use std::sync::Arc;

use reqwest::header::{AUTHORIZATION, ETAG, IF_MATCH};
use serde_json::{Value, json};

use super::{accept, full_ride};
use accounts::api_keys::AccountRole;
use model::messages::UPDATED;
use test_support::{Api, TestApp, eventually};

/// Status, `ETag` and body of an answer.
type Edited = (u16, Option<String>, Value);

async fn edit(api: &Api, key: &str, order: &str, version: Option<&str>, patch: Value) -> Edited {
    let mut request = api.client.patch(api.url(&format!("/api/v1/orders/{order}"))).json(&patch);
    if let Some(version) = version {
        request = request.header(IF_MATCH, version);
    }
    read(request.header(AUTHORIZATION, format!("Bearer {key}")).send().await.unwrap()).await
}

async fn read(answer: reqwest::Response) -> Edited {
    let etag = answer.headers().get(ETAG).map(|etag| etag.to_str().unwrap().to_owned());
    (answer.status().as_u16(), etag, answer.json().await.unwrap_or_default())
}

async fn etag_of(api: &Api, key: &str, order: &str) -> Option<String> {
    read(api.send_raw(&format!("/api/v1/orders/{order}"), key).await).await.1
}

/// Status and error code of an answer.
fn refusal((status, _, body): &Edited) -> (u16, &str) {
    (*status, body["error_code"].as_str().unwrap_or("none"))
}

#[tokio::test]
async fn patch_changes_contents_and_version() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    let create = async || {
        let request = api.client.post(api.url("/api/v1/orders")).header("idempotency-key", "K-1");
        let request = request.header(AUTHORIZATION, format!("Bearer {shop}")).json(&full_ride("ORD-1"));
        read(request.send().await.unwrap()).await
    };
    let created = create().await;
    assert_eq!((created.0, created.1.as_deref()), (201, Some("\"0\"")));
    assert_eq!(etag_of(&api, &shop, "ORD-1").await.as_deref(), Some("\"0\""));

    let patch = json!({
        "pickup": { "latitude": -6.3, "longitude": 106.9, "address": "New pickup" },
        "dropoff": { "address": null }, "notes": null, "metadata": { "crm_id": "8", "shift": "2" },
        "contact": { "email": null },
    });
    let (status, etag, order) = edit(&api, &shop, "ORD-1", Some("\"0\""), patch).await;
    assert_eq!((status, etag.as_deref()), (200, Some("\"1\"")), "{order}");
    let repeated = create().await;
    assert_eq!((repeated.0, repeated.1), (201, None), "a repeated creation has no version");
    let pickup = json!({ "latitude": -6.3, "longitude": 106.9, "address": "New pickup" });
    assert_eq!((&order["pickup"], &order["notes"]), (&pickup, &Value::Null));
    assert_eq!(order["dropoff"], json!({ "latitude": -6.1754, "longitude": 106.8272 }));
    assert_eq!(order["metadata"], json!({ "crm_id": "8", "shift": "2" }));
    assert!(!order.to_string().contains("CONTACT-TEXT"), "{order}");
    let (_, _, shown) = read(api.send_raw("/api/v1/orders/ORD-1", &shop).await).await;
    assert_eq!(
        ["pickup", "dropoff", "metadata", "notes"].map(|name| &shown[name]),
        ["pickup", "dropoff", "metadata", "notes"].map(|name| &order[name])
    );
    let contact = api.get("/api/v1/orders/ORD-1/contact", &t.key(AccountRole::Support).await).await.body;
    assert_eq!(contact, json!({ "name": "CONTACT-TEXT", "phone": "+628123456789" }));

    let (status, etag, _) = edit(&api, &shop, "ORD-1", Some("\"1\""), json!({ "metadata": { "shift": "2" } })).await;
    assert_eq!((status, etag.as_deref()), (200, Some("\"1\"")), "nothing changed");
    let (status, etag, _) = edit(&api, &shop, "ORD-1", None, json!({ "metadata": { "shift": null } })).await;
    assert_eq!((status, etag.as_deref()), (200, Some("\"2\"")), "metadata have a version");
    let details = "SELECT detail FROM order_events WHERE reason = 'CONTENTS_CHANGED' ORDER BY seq";
    assert_eq!(t.texts(details).await, ["pickup, dropoff, notes, contact, metadata", "metadata"]);
    let events = api.get("/api/v1/events", &shop).await.body;
    let updated = events["events"].as_array().unwrap().iter().filter(|event| event["type"] == "order.updated");
    let updated: Vec<_> = updated.map(|event| event["data"]["changed"].clone()).collect();
    assert_eq!(updated, [json!(["pickup", "dropoff", "notes", "contact", "metadata"]), json!(["metadata"])]);
    t.assert_sound().await;
}

#[tokio::test]
async fn order_without_contents_gets_them() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    assert_eq!(api.post("/api/v1/orders", &shop, test_support::ride_with_id("ORD-1")).await.status, 201);
    assert_eq!(etag_of(&api, &shop, "ORD-1").await.as_deref(), Some("\"0\""));
    for (version, notes) in ["first", "second"].into_iter().enumerate() {
        let expected = format!("\"{version}\"");
        let (status, _, order) = edit(&api, &shop, "ORD-1", Some(&expected), json!({ "notes": notes })).await;
        assert_eq!((status, &order["notes"]), (200, &json!(notes)));
    }
    assert_eq!(etag_of(&api, &shop, "ORD-1").await.as_deref(), Some("\"2\""));
}

#[tokio::test]
async fn older_version_is_refused() {
    let t = TestApp::start().await;
    let api = Arc::new(Api::start(&t.app).await);
    let shop = t.key(AccountRole::Producer).await;
    for round in 0..5 {
        let order = format!("ORD-{round}");
        assert_eq!(api.post("/api/v1/orders", &shop, full_ride(&order)).await.status, 201);
        t.run_due().await;
        let mut both: Vec<u16> = Vec::new();
        let edits = ["one", "two"].map(|notes| edit(&api, &shop, &order, Some("\"0\""), json!({ "notes": notes })));
        for (status, _, body) in futures_util::future::join_all(edits).await {
            both.push(status);
            assert!(status == 200 || body["error_code"] == "VERSION_CHANGED", "{body}");
        }
        both.sort_unstable();
        assert_eq!(both, [200, 412], "one of two changes with one version succeeds, although the search goes on");
    }
    let wrong = edit(&api, &shop, "ORD-0", Some("W/\"1\""), json!({})).await;
    assert_eq!(refusal(&wrong), (422, "INVALID"));
}

#[tokio::test]
async fn changes_without_a_version_all_succeed() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    assert_eq!(api.post("/api/v1/orders", &shop, test_support::ride_with_id("ORD-1")).await.status, 201);
    let edits = (0..4).map(|n| {
        let patch = json!({ "metadata": { (format!("key{n}")): "x" } });
        edit(&api, &shop, "ORD-1", None, patch)
    });
    for (status, _, body) in futures_util::future::join_all(edits).await {
        assert_eq!(status, 200, "{body}");
    }
    let (_, etag, order) = read(api.send_raw("/api/v1/orders/ORD-1", &shop).await).await;
    assert_eq!((etag.as_deref(), order["metadata"].as_object().unwrap().len()), (Some("\"4\""), 4));
}

#[tokio::test]
async fn only_some_roles_change_an_order_until_its_pickup() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let shop = t.key(AccountRole::Producer).await;
    assert_eq!(api.post("/api/v1/orders", &shop, full_ride("ORD-1")).await.status, 201);
    for role in [AccountRole::Viewer, AccountRole::Operator] {
        let answer = edit(&api, &t.key(role).await, "ORD-1", None, json!({ "notes": "x" })).await;
        assert_eq!(refusal(&answer), (403, "FORBIDDEN"), "{role:?}");
    }
    let driver = t.driver_key("D1").await;
    assert_eq!(refusal(&edit(&api, &driver, "ORD-1", None, json!({ "notes": "x" })).await), (403, "FORBIDDEN"));
    let other = t.key_named("other", AccountRole::Producer, None).await;
    assert_eq!(refusal(&edit(&api, &other, "ORD-1", None, json!({ "notes": "x" })).await), (404, "ORDER_NOT_FOUND"));
    for role in [AccountRole::Producer, AccountRole::Dispatcher, AccountRole::Support, AccountRole::Admin] {
        let answer = edit(&api, &t.key(role).await, "ORD-1", None, json!({ "notes": format!("{role:?}") })).await;
        assert_eq!(answer.0, 200, "{role:?}: {answer:?}");
    }
    for (field, patch) in [
        ("service_type", json!({ "service_type": "TAXI" })),
        ("amount_minor", json!({ "amount_minor": 1 })),
        ("pickup", json!({ "pickup": null })),
        ("dropoff", json!({ "dropoff": { "city": "Jakarta" } })),
        ("contact", json!({ "contact": { "phone": "1" } })),
    ] {
        let (status, _, body) = edit(&api, &shop, "ORD-1", None, patch).await;
        assert!(status == 422 && body["errors"].to_string().contains(field), "{field}: {body}");
    }
    t.run_due().await;
    assert_eq!(accept(&t, &api, "ORD-1").await.status, 200);
    assert_eq!(edit(&api, &shop, "ORD-1", None, json!({ "notes": "assigned" })).await.0, 200);
    for verb in ["pickup", "complete"] {
        let answer = api.post(&format!("/api/v1/orders/ORD-1/{verb}"), &driver, json!({ "driver_id": "D1" })).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let late = edit(&api, &shop, "ORD-1", None, json!({ "notes": "late" })).await;
        assert_eq!(refusal(&late), (409, "WRONG_STATE"), "after {verb}");
    }
    t.assert_sound().await;
}

#[tokio::test]
async fn moved_pickup_reaches_asked_drivers_and_next_search() {
    let t = TestApp::start().await;
    let api = Arc::new(Api::start(&t.app).await);
    t.drivers(&[("D1", 100.0), ("D2", 5_000.0)]).await;
    let shop = t.key(AccountRole::Producer).await;
    assert_eq!(api.post("/api/v1/orders", &shop, full_ride("ORD-1")).await.status, 201);
    t.run_due().await;
    let offer = t.live_offer("ORD-1").await;
    let driver = t.driver_key(&offer.driver_id).await;
    let path = format!("/api/v1/drivers/{}/offers", offer.driver_id);
    let waiting = tokio::spawn({
        let (api, driver, path) = (api.clone(), driver.clone(), format!("{path}?wait_sec=30&known={}", offer.id));
        async move { api.get(&path, &driver).await }
    });
    eventually("the app waits", async || t.app.core.loops.count_turns("offer board") > 1).await;
    // 4.9 km to the north, next to the second driver.
    let patch = json!({ "pickup": { "latitude": -6.1647, "longitude": 106.8456, "address": "Far away" } });
    assert_eq!(edit(&api, &shop, "ORD-1", None, patch).await.0, 200);
    let seen = &waiting.await.unwrap().body["offers"][0];
    assert_eq!((&seen["pickup"]["address"], &seen["version"]), (&json!("Far away"), &json!(1)));
    assert!((4_000.0..6_000.0).contains(&seen["distance_m"].as_f64().unwrap()), "{seen}");
    let at_once = api.get(&format!("{path}?wait_sec=30&known={}:0", offer.id), &driver).await;
    assert_eq!(at_once.body["offers"][0]["version"], 1, "the app missed a change");

    let body = json!({ "driver_id": offer.driver_id, "offer_id": offer.id });
    assert_eq!(api.post("/api/v1/orders/ORD-1/decline", &driver, body).await.status, 200);
    t.run_due().await;
    let next = t.live_offer("ORD-1").await;
    let distance: f64 = sqlx::query_scalar("SELECT distance_m FROM offers WHERE state = 'offered'")
        .fetch_one(&t.app.core.db)
        .await
        .unwrap();
    assert!(next.driver_id == "D2" && distance < 1_000.0, "{next:?} {distance}");
    t.assert_sound().await;
}

#[tokio::test]
async fn moved_pickup_stays_in_its_area() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    let mut ride = full_ride("ORD-1");
    ride["area_id"] = json!("JKT");
    assert_eq!(api.post("/api/v1/orders", &shop, ride).await.status, 201);
    let before = t.snapshot("ORD-1").await.order;
    let patch = json!({ "pickup": { "latitude": 1.0, "longitude": 2.0 } });
    assert_eq!(edit(&api, &shop, "ORD-1", None, patch).await.0, 200);
    let after = t.snapshot("ORD-1").await.order;
    assert_eq!((after.pickup_lat, after.pickup_lng), (1.0, 2.0));
    assert_eq!((after.area_id, after.lifetime_deadline), (before.area_id, before.lifetime_deadline));
    t.assert_sound().await;
}

#[tokio::test]
async fn driver_of_the_order_is_notified() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let shop = t.key(AccountRole::Producer).await;
    assert_eq!(api.post("/api/v1/orders", &shop, full_ride("ORD-1")).await.status, 201);
    t.run_due().await;
    assert_eq!(accept(&t, &api, "ORD-1").await.status, 200);
    let patches = [
        json!({ "metadata": { "crm_id": "8" } }),
        json!({ "dropoff": { "address": "CHANGED-TEXT" }, "contact": { "name": "CHANGED-TEXT" } }),
    ];
    for patch in patches {
        assert_eq!(edit(&api, &shop, "ORD-1", None, patch).await.0, 200);
    }
    assert_eq!(t.messages_of("ORD-1", UPDATED).await, 1);
    let payload = t.texts("SELECT payload::text FROM outbox WHERE kind = 'UPDATED'").await.remove(0);
    assert!(payload.contains(r#"["dropoff", "contact"]"#) && !payload.contains("TEXT"), "{payload}");
    t.run_due().await;
    assert_eq!(t.texts("SELECT state FROM outbox WHERE kind = 'UPDATED'").await, ["delivered"]);
    let driver = t.driver_key("D1").await;
    let order = api.get("/api/v1/orders/ORD-1", &driver).await.body;
    assert_eq!(
        (&order["dropoff"]["address"], &order["contact"]["name"]),
        (&json!("CHANGED-TEXT"), &json!("CHANGED-TEXT"))
    );
    t.assert_sound().await;
}
