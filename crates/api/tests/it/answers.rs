//! Results of offers, orders and customer requests.

use serde_json::{Value, json};

use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp, by, http_client, ride, secs};

/// Creates an order offered to D1. Returns D1's key and the body that names the offer.
async fn offered(t: &TestApp) -> (String, Value) {
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let offer = t.live_offer("ORD-1").await;
    (t.driver_key("D1").await, json!({ "driver_id": "D1", "offer_id": offer.id }))
}

#[tokio::test]
async fn an_order_lives_from_creation_to_completion() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let producer = t.key(AccountRole::Producer).await;
    t.drivers(&[("D1", 100.0)]).await;
    let driver = t.driver_key("D1").await;

    let created = api.post("/api/v1/orders", &producer, ride()).await;
    assert_eq!((created.status, created.text("status")), (201, "DISPATCHING"));
    assert_eq!(created.body["lifetime_left_sec"], 1800);
    let order = created.text("order_id").to_owned();
    let path = format!("/api/v1/orders/{order}");
    t.run_due().await;
    t.advance(secs(20)).await;
    let searching = api.get(&path, &producer).await;
    assert_eq!((searching.status, &searching.body["next"]["action"]), (200, &json!("OFFER_TIMEOUT")));
    assert_eq!((&searching.body["next"]["in_sec"], &searching.body["attempt_no"]), (&json!(100), &json!(1)));
    assert_eq!(searching.body["lifetime_left_sec"], 1780);

    let offer = t.live_offer(&order).await;
    let answer = json!({ "driver_id": "D1", "offer_id": offer.id });
    for _ in 0..2 {
        let accepted = api.post(&format!("{path}/accept"), &driver, answer.clone()).await;
        assert_eq!((accepted.status, accepted.text("status")), (200, "DRIVER_ASSIGNED"));
    }
    assert_eq!(api.post(&format!("{path}/complete"), &driver, json!({})).await.error(), (409, "WRONG_STATE"));
    assert_eq!(api.post(&format!("{path}/pickup"), &driver, json!({})).await.text("status"), "PICKED_UP");
    assert_eq!(
        api.post(&format!("{path}/complete"), &driver, json!({ "driver_id": "D1" })).await.text("status"),
        "COMPLETED"
    );
    let done = api.get(&path, &producer).await;
    assert_eq!((&done.body["next"], done.body.get("lifetime_left_sec")), (&Value::Null, None));

    let timeline = api.get(&format!("{path}/timeline"), &producer).await;
    let reasons: Vec<_> =
        timeline.body["events"].as_array().unwrap().iter().map(|e| e["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["ORDER_CREATED", "ATTEMPT_STARTED", "OFFER_ACCEPTED", "PICKED_UP", "COMPLETED"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn an_expired_offer_is_gone() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let (driver, offer) = offered(&t).await;
    t.advance(secs(120)).await;
    // Before and after the timeout job has run.
    for _ in 0..2 {
        assert_eq!(
            api.post("/api/v1/orders/ORD-1/accept", &driver, offer.clone()).await.error(),
            (410, "OFFER_EXPIRED")
        );
        assert_eq!(
            api.post("/api/v1/orders/ORD-1/decline", &driver, offer.clone()).await.error(),
            (410, "OFFER_EXPIRED")
        );
        t.run_due().await;
    }
    t.assert_sound().await;
}

#[tokio::test]
async fn a_declined_offer_stays_declined() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let (driver, offer) = offered(&t).await;
    let mut with_reason = offer.clone();
    with_reason["reason"] = json!("flat tyre");
    for _ in 0..2 {
        assert_eq!(api.post("/api/v1/orders/ORD-1/decline", &driver, with_reason.clone()).await.status, 200);
    }
    assert_eq!(api.post("/api/v1/orders/ORD-1/accept", &driver, offer).await.error(), (410, "OFFER_DECLINED"));
    let timeline = api.get("/api/v1/orders/ORD-1/timeline", &t.key(AccountRole::Support).await).await;
    assert_eq!(timeline.body["events"][2]["detail"], "flat tyre");
    t.assert_sound().await;
}

#[tokio::test]
async fn an_unknown_offer_is_not_found() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let (driver, mut offer) = offered(&t).await;
    t.order("ORD-2").await;
    assert_eq!(api.post("/api/v1/orders/ORD-2/accept", &driver, offer.clone()).await.error(), (404, "ORDER_NOT_FOUND"));
    assert_eq!(api.post("/api/v1/orders/ORD-3/accept", &driver, offer.clone()).await.error(), (404, "ORDER_NOT_FOUND"));
    offer["offer_id"] = json!(uuid::Uuid::nil());
    assert_eq!(api.post("/api/v1/orders/ORD-1/accept", &driver, offer.clone()).await.error(), (404, "OFFER_NOT_FOUND"));
    offer["offer_id"] = json!("not-a-uuid");
    assert_eq!(api.post("/api/v1/orders/ORD-1/accept", &driver, offer).await.error(), (422, "INVALID"));
}

#[tokio::test]
async fn a_finished_order_is_not_taken() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let (driver, offer) = offered(&t).await;
    t.cancel("ORD-1").await.unwrap();
    assert_eq!(api.post("/api/v1/orders/ORD-1/accept", &driver, offer).await.error(), (409, "ORDER_FINISHED"));
    let cancel = api.post("/api/v1/orders/ORD-1/pickup", &driver, json!({})).await;
    assert_eq!(cancel.error(), (404, "ORDER_NOT_FOUND"));
    t.assert_sound().await;
}

#[tokio::test]
async fn an_accepted_order_that_was_cancelled_is_not_accepted_again() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let (driver, offer) = offered(&t).await;
    assert_eq!(api.post("/api/v1/orders/ORD-1/accept", &driver, offer.clone()).await.status, 200);
    t.cancel("ORD-1").await.unwrap();
    assert_eq!(api.post("/api/v1/orders/ORD-1/accept", &driver, offer).await.error(), (409, "ORDER_FINISHED"));
    t.assert_sound().await;
}

#[tokio::test]
async fn a_busy_driver_cannot_take_a_second_order() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let (driver, offer) = offered(&t).await;
    t.order("ORD-2").await;
    t.act("ORD-2", |s| model::decide::actions::assign_driver(s, &by("operator:test"), &"D1".into())).await.unwrap();
    assert_eq!(api.post("/api/v1/orders/ORD-1/accept", &driver, offer).await.error(), (409, "DRIVER_BUSY"));
    t.assert_sound().await;
}

#[tokio::test]
async fn late_driver_gets_required_text_or_translation() {
    let t = TestApp::with(|config| config.dispatch.ask_at_once = 2).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let key = t.driver_key("D2").await;
    let offers = t.live_offers("ORD-1").await;
    let offer = |driver: &str| offers.iter().find(|offer| offer.driver_id.as_str() == driver).unwrap().id;
    let path = "/api/v1/orders/ORD-1/accept";
    let body = json!({ "driver_id": "D2", "offer_id": offer("D2") });
    let in_language = async |language: &str| -> Value {
        let request = http_client().post(api.url(path)).bearer_auth(&key).header("accept-language", language);
        request.json(&body).send().await.unwrap().json().await.unwrap()
    };
    let said = "Chuyến đi đã có người nhận";

    // Another driver holds the gate and has not yet written the row.
    let _: () = t.redis(&["SET", "trip_lock:ORD-1", "D1", "EX", "10"]).await;
    let beside = api.post(path, &key, body.clone()).await;
    assert_eq!((beside.error(), beside.text("message")), ((409, "RESERVATION_IN_PROGRESS"), said));
    let _: () = t.redis(&["DEL", "trip_lock:ORD-1"]).await;
    t.accept("ORD-1", "D1", offer("D1")).await.unwrap();
    let after = api.post(path, &key, body.clone()).await;
    assert_eq!((after.error(), after.text("message")), ((409, "ALREADY_ASSIGNED"), said));
    assert_eq!(in_language("vi-VN, en;q=0.5").await["message"], said);
    assert_eq!(in_language("id-ID").await["message"], "Perjalanan ini sudah diambil pengemudi lain");
    assert_eq!(in_language("fr, en;q=0.5").await["message"], "Another driver has taken this trip");
    t.assert_sound().await;
}

#[tokio::test]
async fn a_customer_cancels_until_the_trip_is_over() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let producer = t.key(AccountRole::Producer).await;
    let (driver, offer) = offered(&t).await;
    api.post("/api/v1/orders/ORD-1/accept", &driver, offer).await;
    let why = json!({ "reason": "found a lift" });
    for _ in 0..2 {
        let cancelled = api.post("/api/v1/orders/ORD-1/cancel", &producer, why.clone()).await;
        assert_eq!((cancelled.status, cancelled.text("status")), (200, "CANCELLED_BY_USER"));
    }
    assert_eq!(
        api.post("/api/v1/orders/ORD-404/cancel", &producer, why.clone()).await.error(),
        (404, "ORDER_NOT_FOUND")
    );
    let long = json!({ "reason": "x".repeat(501) });
    assert_eq!(api.post("/api/v1/orders/ORD-1/cancel", &producer, long).await.error(), (422, "INVALID"));

    t.order("ORD-2").await;
    t.run_due().await;
    t.accept_offer("ORD-2").await;
    t.carry_out("ORD-2", "D1").await;
    assert_eq!(api.post("/api/v1/orders/ORD-2/cancel", &producer, why).await.error(), (409, "ORDER_FINISHED"));
    t.assert_sound().await;
}
