//! Orders with a pickup time over HTTP. It is 2030-01-01 08:00 UTC.

use serde_json::{Value, json};

use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp, ride_with_id, secs};

fn ride_at(order: &str, pickup_at: impl Into<Value>) -> Value {
    let mut ride = ride_with_id(order);
    ride["pickup_at"] = pickup_at.into();
    ride
}

#[tokio::test]
async fn pickup_time_is_returned_with_the_start() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    // Three offsets of one instant.
    for (order, pickup_at) in
        [("A", "2030-01-01T17:00:00+07:00"), ("B", "2030-01-01T10:00:00Z"), ("C", "2030-01-01T06:00:00-04:00")]
    {
        let created = api.post("/api/v1/orders", &shop, ride_at(order, pickup_at)).await;
        assert_eq!(created.status, 201, "{created:?}");
        let read = api.get(&format!("/api/v1/orders/{order}"), &shop).await;
        for answer in [&created, &read] {
            assert_eq!(answer.body["status"], "SCHEDULED");
            assert_eq!(answer.body["pickup_at"], "2030-01-01T10:00:00Z");
            let next = json!({ "action": "DISPATCH_START", "at": "2030-01-01T09:40:00Z", "in_sec": 6000 });
            assert_eq!(answer.body["next"], next);
            assert_eq!(answer.body["lifetime_deadline"], "2030-01-01T10:10:00Z");
        }
    }
    let listed = api.get("/api/v1/orders?status=SCHEDULED", &shop).await;
    assert_eq!(listed.body["orders"].as_array().unwrap().len(), 3);
    let events = api.get("/api/v1/events", &shop).await;
    let of_a = events.body["events"].as_array().unwrap().iter().filter(|event| event["data"]["order_id"] == "A");
    let of_a: Vec<_> = of_a.map(|event| (&event["type"], &event["data"]["status"])).collect();
    let (created, scheduled, status) = (json!("order.created"), json!("order.scheduled"), json!("SCHEDULED"));
    assert_eq!(of_a, [(&created, &status), (&scheduled, &status)]);
    let explained = api.get("/api/v1/orders/A/explain", &t.key(AccountRole::Viewer).await).await;
    assert!(explained.body.to_string().contains("dispatch starts at 2030-01-01T09:40:00Z"), "{explained:?}");

    let cancelled = api.post("/api/v1/orders/A/cancel", &shop, json!({})).await;
    assert_eq!(cancelled.body["status"], "CANCELLED_BY_USER");
    t.assert_sound().await;
}

#[tokio::test]
async fn repeated_creation_of_a_scheduled_order_answers_the_same() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    let create =
        || async { api.post_once("/api/v1/orders", &shop, "key-1", ride_at("ORD-1", "2030-01-01T10:00:00Z")).await };
    let first = create().await;
    assert_eq!((first.status, &first.body["status"]), (201, &json!("SCHEDULED")));
    t.cancel("ORD-1").await.unwrap();
    let again = create().await;
    assert_eq!((again.status, again.body), (201, first.body));
}

#[tokio::test]
async fn unusable_pickup_times_are_named() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    for (pickup_at, words) in [
        (json!("2030-01-01T10:00:00"), "add its offset from UTC, such as +07:00"),
        (json!("2030-01-01 10:00"), "must be an RFC 3339 time"),
        (json!("2030-01-01T07:59:00Z"), "is in the past"),
        (json!("2030-02-01T07:59:00Z"), "more than 30 days ahead"),
        (json!(1_893_492_000), "pickup_at"),
    ] {
        let refused = api.post("/api/v1/orders", &shop, ride_at("ORD-1", pickup_at.clone())).await;
        assert_eq!(refused.error(), (422, "INVALID"), "{pickup_at}");
        let text = refused.body["errors"].to_string();
        assert!(text.contains("pickup_at") && text.contains(words), "{pickup_at}: {text}");
    }
    // Within the lead, dispatch starts at once.
    let soon = api.post("/api/v1/orders", &shop, ride_at("ORD-1", "2030-01-01T08:19:00Z")).await;
    assert_eq!((soon.status, &soon.body["status"]), (201, &json!("DISPATCHING")));
    assert_eq!(soon.body["pickup_at"], "2030-01-01T08:19:00Z");
}

#[tokio::test]
async fn pickup_moves_until_the_start() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    t.drivers(&[("D1", 100.0)]).await;
    api.post("/api/v1/orders", &shop, ride_at("ORD-1", "2030-01-01T10:00:00Z")).await;
    let change =
        async |body: Value| api.send(reqwest::Method::PATCH, "/api/v1/orders/ORD-1", &shop, "", body.to_string()).await;
    let moved = change(json!({ "pickup_at": "2030-01-01T19:00:00+07:00", "notes": "Gate 2" })).await;
    assert_eq!((moved.status, &moved.body["pickup_at"]), (200, &json!("2030-01-01T12:00:00Z")), "{moved:?}");
    assert_eq!((&moved.body["next"]["at"], &moved.body["notes"]), (&json!("2030-01-01T11:40:00Z"), &json!("Gate 2")));
    let same = change(json!({ "pickup_at": "2030-01-01T12:00:00Z" })).await;
    assert_eq!(same.status, 200);
    for pickup_at in [json!(null), json!("2030-01-01T07:00:00Z"), json!("2030-01-01T12:00:00")] {
        let refused = change(json!({ "pickup_at": pickup_at })).await;
        assert_eq!(refused.error(), (422, "INVALID"), "{pickup_at}");
        assert!(refused.body["errors"].to_string().contains("pickup_at"), "{refused:?}");
    }
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED", "CONTENTS_CHANGED", "PICKUP_MOVED"]);
    let events = api.get("/api/v1/events", &shop).await;
    let kinds: Vec<_> = events.body["events"].as_array().unwrap().iter().map(|event| event["type"].clone()).collect();
    assert_eq!(kinds, ["order.created", "order.scheduled", "order.updated", "order.scheduled"]);
    assert_eq!(events.body["events"][2]["data"]["changed"], json!(["notes", "pickup_at"]));

    t.run_for(secs(100 * 60)).await;
    assert_eq!(t.snapshot("ORD-1").await.order.status.as_str(), "SCHEDULED", "the first start is void");
    t.run_for(secs(120 * 60)).await;
    assert_eq!(t.asked("ORD-1").await.as_str(), "D1");
    for pickup_at in ["2030-01-01T15:00:00Z", "2030-01-01T07:00:00Z"] {
        let late = change(json!({ "pickup_at": pickup_at })).await;
        assert_eq!(late.error(), (409, "WRONG_STATE"), "{pickup_at}");
    }
    let same = change(json!({ "pickup_at": "2030-01-01T12:00:00Z", "notes": "Gate 3" })).await;
    assert_eq!((same.status, &same.body["notes"]), (200, &json!("Gate 3")), "the time that was read");
    t.assert_sound().await;
}
