//! HTTP requests of drivers' apps, and the search for drivers near a place.

use reqwest::Method;
use serde_json::{Value, json};

use accounts::api_keys::AccountRole;
use foundation::db;
use model::{
    ids::{DriverId, LatLng},
    ranking::SearchCircle,
};
use orders::fleet::driver_index;
use test_support::{Answer, Api, TestApp, millis, secs};

async fn put(api: &Api, path: &str, key: &str, body: serde_json::Value) -> Answer {
    api.send(Method::PUT, path, key, "", body.to_string()).await
}

fn pickup(radius_m: f64) -> SearchCircle {
    SearchCircle { centre: LatLng::new(-6.2088, 106.8456), radius_m }
}

async fn near(t: &TestApp, most: usize) -> Vec<DriverId> {
    driver_index::search_drivers(&t.app.core, &"RIDE".into(), pickup(5_000.0), most).await.unwrap().ids
}

#[tokio::test]
async fn driver_reports_place_and_availability() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 9_000.0), ("D2", 100.0)]).await;
    let api = Api::start(&t.app).await;
    let key = t.driver_key("D1").await;
    assert_eq!(near(&t, 10).await, ["D2"]);
    let moved =
        put(&api, "/api/v1/drivers/D1/location", &key, json!({ "latitude": -6.2089, "longitude": 106.8456 })).await;
    assert_eq!((moved.status, &moved.body["available"]), (200, &json!(true)));
    assert_eq!(near(&t, 10).await, ["D1", "D2"]);
    let off = put(&api, "/api/v1/drivers/D1/availability", &key, json!({ "available": false })).await;
    assert_eq!((off.status, &off.body["available"]), (200, &json!(false)));
    assert_eq!(near(&t, 10).await, ["D2"]);

    let shown = api.get("/api/v1/drivers/D1", &key).await;
    assert_eq!((shown.status, &shown.body["id"], &shown.body["lat"]), (200, &json!("D1"), &json!(-6.2089)));
}

#[tokio::test]
async fn a_driver_speaks_for_itself_only_and_makes_sense() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 100.0)]).await;
    let api = Api::start(&t.app).await;
    let (key, producer) = (t.driver_key("D1").await, t.key(AccountRole::Producer).await);
    let here = json!({ "latitude": 1.0, "longitude": 1.0 });
    for path in ["/api/v1/drivers/D2/location", "/api/v1/drivers/D2/availability", "/api/v1/drivers/D2/offers"] {
        let method = if path.ends_with("offers") { Method::GET } else { Method::PUT };
        let body = if path.ends_with("availability") { json!({ "available": true }) } else { here.clone() };
        assert_eq!(api.send(method, path, &key, "", body.to_string()).await.error(), (403, "FORBIDDEN"), "{path}");
    }
    assert_eq!(put(&api, "/api/v1/drivers/D1/location", &producer, here.clone()).await.error(), (403, "FORBIDDEN"));
    assert_eq!(put(&api, "/api/v1/drivers/D1/location", "", here.clone()).await.error(), (401, "UNAUTHENTICATED"));
    for nowhere in [json!({ "latitude": 91.0, "longitude": 0.0 }), json!({ "latitude": 0.0 }), json!({})] {
        assert_eq!(put(&api, "/api/v1/drivers/D1/location", &key, nowhere).await.error(), (422, "INVALID"));
    }
    let ghost = t.driver_key("D9").await;
    assert_eq!(put(&api, "/api/v1/drivers/D9/location", &ghost, here).await.error(), (404, "DRIVER_NOT_FOUND"));
    assert_eq!(api.get("/api/v1/drivers/D9/offers", &ghost).await.error(), (404, "DRIVER_NOT_FOUND"));
    for bad in ["wait_sec=51", "wait_sec=-1", "wait_sec=soon", "known=1,2"] {
        let path = format!("/api/v1/drivers/D1/offers?{bad}");
        assert_eq!(api.get(&path, &key).await.error(), (422, "INVALID"), "{bad}");
    }
}

#[tokio::test]
async fn waiting_app_gets_offer_and_its_end() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    let api = Api::start(&t.app).await;
    let key = t.driver_key("D1").await;
    let none = api.get("/api/v1/drivers/D1/offers", &key).await;
    assert_eq!((none.status, &none.body["offers"]), (200, &json!([])));

    let wait = api.get("/api/v1/drivers/D1/offers?wait_sec=30", &key);
    let offer = async {
        tokio::time::sleep(millis(300)).await;
        t.order("ORD-1").await;
        t.run_due().await;
    };
    let (heard, ()) = tokio::join!(wait, offer);
    let offer = &heard.body["offers"][0];
    assert_eq!((&offer["order_id"], &offer["service_type"]), (&json!("ORD-1"), &json!("RIDE")));

    let path = format!("/api/v1/drivers/D1/offers?wait_sec=30&known={}", offer["offer_id"].as_str().unwrap());
    let wait = api.get(&path, &key);
    let cancel = async {
        tokio::time::sleep(millis(600)).await;
        t.cancel("ORD-1").await.unwrap();
    };
    let (gone, ()) = tokio::join!(wait, cancel);
    assert_eq!((gone.status, &gone.body["offers"]), (200, &json!([])));
    let nothing = api.get("/api/v1/drivers/D1/offers?wait_sec=1", &key).await;
    assert_eq!((nothing.status, &nothing.body["offers"]), (200, &json!([])));
}

// Rule F44: An older fix never replaces a newer one. A fix may contain its time.
#[tokio::test]
async fn late_location_does_not_replace_a_newer_one() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    driver_index::rebuild_if_missing(&t.app.orders).await.unwrap();
    let api = Api::start(&t.app).await;
    let key = t.driver_key("D1").await;
    let start = db::database_now(&t.app.core.db).await.unwrap();
    let at = |seconds: i64| (start + chrono::TimeDelta::seconds(seconds)).to_rfc3339();
    let send = async |latitude: f64, at: Option<String>| -> Answer {
        let mut fix = json!({ "latitude": latitude, "longitude": 106.8 });
        if let Some(at) = at {
            fix["located_at"] = json!(at);
        }
        put(&api, "/api/v1/drivers/D1/location", &key, fix).await
    };
    t.advance(secs(100)).await;
    let newest = send(-6.1, Some(at(90))).await;
    assert_eq!((newest.status, &newest.body["recorded"]), (200, &json!(true)), "{newest:?}");
    for late in [at(10), at(89)] {
        let answer = send(-6.9, Some(late)).await;
        assert_eq!((answer.status, &answer.body["recorded"]), (200, &json!(false)));
        assert_eq!((&answer.body["latitude"], &answer.body["located_at"]), (&json!(-6.1), &newest.body["located_at"]));
    }
    let places =
        "SELECT lat || ' ' || extract(epoch FROM located_at - to_timestamp(0))::bigint FROM drivers WHERE id = 'D1'";
    assert_eq!(t.texts(places).await, [format!("-6.1 {}", start.timestamp() + 90)]);
    let near: Vec<Option<(f64, f64)>> = t.redis(&["GEOPOS", "dispatchq:drivers:RIDE", "D1"]).await;
    assert!(near[0].is_some_and(|(_, latitude)| (latitude + 6.1).abs() < 0.001), "{near:?}");
    assert_eq!(send(-6.15, Some(at(90))).await.body["recorded"], true, "of the same time the last one counts");
    // A fix without a time counts as current: earlier fixes are late, later ones are not.
    assert_eq!(send(-6.2, None).await.body["recorded"], true);
    assert_eq!(send(-6.3, Some(at(99))).await.body["recorded"], false);
    assert_eq!(send(-6.3, Some(at(130))).await.body["recorded"], true, "a clock that is half a minute fast");
    assert_eq!(send(-6.4, None).await.body["recorded"], true, "a fix without a time is not refused");
    for wrong in [
        at(100 + 61),
        at(100 - 86_401),
        "+99999-01-01T00:00:00Z".to_owned(),
        "-9999-01-01T00:00:00Z".to_owned(),
        "yesterday".to_owned(),
    ] {
        let refused = send(-6.5, Some(wrong.clone())).await;
        assert_eq!(refused.error(), (422, "INVALID"), "{wrong}");
        assert!(refused.body["errors"].to_string().contains("located_at"), "{wrong}: {refused:?}");
    }
    assert_eq!(t.count("SELECT count(*) FROM drivers WHERE lat = -6.4").await, 1);
    // The clock of Postgres was set back by an hour after the last fix.
    t.sql("UPDATE drivers SET located_at = located_at + interval '1 hour' WHERE id = 'D1'").await;
    assert_eq!(send(-6.6, Some(at(100))).await.body["recorded"], true);
    assert_eq!(send(-6.7, Some(at(99))).await.body["recorded"], false);
}

#[tokio::test]
async fn a_driver_cancels_over_http() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    let api = Api::start(&t.app).await;
    let (key, other) = (t.driver_key("D1").await, t.driver_key("D2").await);
    t.order("ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    let cancel = "/api/v1/orders/ORD-1/driver-cancel";
    assert_eq!(api.post(cancel, &other, json!({})).await.error(), (404, "ORDER_NOT_FOUND"));
    let answer = api.post(cancel, &key, json!({ "reason": "flat tyre" })).await;
    assert_eq!((answer.status, answer.text("status")), (200, "DISPATCHING"));
    t.assert_sound().await;
}

/// Asserts that the answer shows only the status of an order that now has another driver.
fn assert_tells_nothing_of_its_driver(answer: &Answer) {
    assert_eq!((answer.status, answer.text("status")), (200, "DRIVER_ASSIGNED"));
    assert_eq!(answer.body["driver_id"], Value::Null);
    assert!(answer.body.get("amount_minor").is_none() && answer.body.get("currency").is_none(), "{answer:?}");
}

#[tokio::test]
async fn declining_driver_cannot_see_the_new_driver() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    let api = Api::start(&t.app).await;
    let key = t.driver_key("D1").await;
    t.order("ORD-1").await;
    t.run_due().await;
    let decline = json!({ "driver_id": "D1", "offer_id": t.live_offer("ORD-1").await.id });
    assert_eq!(api.post("/api/v1/orders/ORD-1/decline", &key, decline.clone()).await.status, 200);
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    let again = api.post("/api/v1/orders/ORD-1/decline", &key, decline).await;
    assert_tells_nothing_of_its_driver(&again);
    t.assert_sound().await;
}

#[tokio::test]
async fn former_driver_cannot_see_the_new_driver() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    let api = Api::start(&t.app).await;
    let key = t.driver_key("D1").await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    let cancel = "/api/v1/orders/ORD-1/driver-cancel";
    assert_eq!(api.post(cancel, &key, json!({})).await.status, 200);
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    let again = api.post(cancel, &key, json!({})).await;
    assert_tells_nothing_of_its_driver(&again);
    t.assert_sound().await;
}

#[tokio::test]
async fn driver_index_is_rebuilt_after_a_flush() {
    let t = TestApp::start().await;
    t.drivers(&[("far", 4_000.0), ("near", 100.0), ("middle", 2_000.0), ("beyond", 5_200.0)]).await;
    let indexed = async || -> i64 { t.redis(&["EXISTS", "dispatchq:drivers:trusted:{dispatchq:drivers:RIDE}"]).await };
    assert_eq!((near(&t, 10).await, indexed().await), (vec!["near".into(), "middle".into(), "far".into()], 0));

    assert!(driver_index::rebuild_if_missing(&t.app.orders).await.unwrap());
    assert!(!driver_index::rebuild_if_missing(&t.app.orders).await.unwrap(), "it is trusted for a while");
    assert_eq!((near(&t, 10).await, indexed().await), (vec!["near".into(), "middle".into(), "far".into()], 1));
    // Redis answers the search now, so a position that only Postgres has changes nothing.
    t.sql("UPDATE drivers SET lat = lat + 1 WHERE id = 'middle'").await;
    assert_eq!(near(&t, 10).await, ["near", "middle", "far"]);

    let _: () = t.redis(&["FLUSHALL"]).await;
    assert_eq!((near(&t, 10).await, indexed().await), (vec!["near".into(), "far".into()], 0));
    assert!(driver_index::rebuild_if_missing(&t.app.orders).await.unwrap());
    assert_eq!((near(&t, 10).await, indexed().await), (vec!["near".into(), "far".into()], 1));
}

#[tokio::test]
async fn an_order_goes_to_where_its_drivers_really_are() {
    let t = TestApp::start().await;
    t.drivers(&[("gone", 50.0), ("near", 100.0)]).await;
    driver_index::rebuild_if_missing(&t.app.orders).await.unwrap();
    // Postgres has a new position that is not in the index yet.
    t.sql("UPDATE drivers SET lat = lat + 1 WHERE id = 'gone'").await;
    t.order("ORD-1").await;
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "near");
    t.assert_sound().await;
}

#[tokio::test]
async fn driver_missing_from_index_is_still_found() {
    let t = TestApp::start().await;
    driver_index::rebuild_if_missing(&t.app.orders).await.unwrap();
    t.drivers(&[("new", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "new");
    t.assert_sound().await;
}

#[tokio::test]
async fn near_a_pole_postgres_is_searched() {
    let t = TestApp::start().await;
    t.sql("INSERT INTO drivers (id, service_types, lat, lng) VALUES ('fram', '{RIDE}', 89.0, 10.0)").await;
    driver_index::rebuild_if_missing(&t.app.orders).await.unwrap();
    let pole = SearchCircle { centre: LatLng::new(89.0, 10.0), radius_m: 5_000.0 };
    assert_eq!(driver_index::search_drivers(&t.app.core, &"RIDE".into(), pole, 10).await.unwrap().ids, ["fram"]);
    let fram = driver_index::DriverPlace {
        id: "fram".into(),
        service_types: vec!["RIDE".into()],
        at: LatLng::new(89.0, 11.0),
        available: true,
    };
    driver_index::upsert_driver(&t.app.core, &fram).await;
    let indexed: i64 = t.redis(&["ZCARD", "dispatchq:drivers:RIDE"]).await;
    assert_eq!(indexed, 0, "Redis places nothing so near to a pole");
}

#[tokio::test]
async fn two_who_build_the_index_at_once_build_one() {
    let t = TestApp::start().await;
    let drivers: Vec<(String, f64)> = (0..2_500).map(|n| (format!("D{n}"), f64::from(n))).collect();
    t.drivers(&drivers.iter().map(|(id, m)| (id.as_str(), *m)).collect::<Vec<_>>()).await;
    let built =
        tokio::join!(driver_index::rebuild_if_missing(&t.app.orders), driver_index::rebuild_if_missing(&t.app.orders));
    assert!(built.0.unwrap() | built.1.unwrap());
    let indexed: i64 = t.redis(&["ZCARD", "dispatchq:drivers:RIDE"]).await;
    assert_eq!(indexed, 2_500);
    let mut keys: Vec<String> = t.redis(&["KEYS", "dispatchq:drivers*"]).await;
    keys.retain(|key| !key.contains(":trusted:"));
    assert_eq!(keys.len(), 2, "{keys:?}");
    let left: i64 = t.redis(&["TTL", "dispatchq:drivers:RIDE"]).await;
    assert!(left > 3_000, "the index outlives its trust, and not its service type: {left}");
}
