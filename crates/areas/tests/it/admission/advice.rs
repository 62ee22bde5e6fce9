//! Advice about free places in an area.

use serde_json::json;

use super::{HERE, create, flag, full_at, limit};
use accounts::api_keys::AccountRole;
use areas::table::limits::LimitsChange;
use test_support::{Answer, Api, TestApp, http_client, millis};

#[tokio::test]
async fn advice_answers_match_the_requirement() {
    let t = TestApp::start().await;
    full_at(&t, 2).await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    let ask = async |place: (f64, f64), loyalty: Option<&str>| -> Answer {
        // Advice may be 100 ms old.
        tokio::time::sleep(millis(150)).await;
        let mut body = json!({ "pickup_location": { "latitude": place.0, "longitude": place.1 },
                               "service_type": "RIDE", "channel": "MYBB", "user_id": "USR-1" });
        if let Some(level) = loyalty {
            body["loyalty_level"] = json!(level);
        }
        api.post("/api/v1/dispatcher/availability-check", &key, body).await
    };
    let free = ask(HERE, None).await;
    let expected = json!({ "status": "AVAILABLE", "area_id": "JKT", "current_waiting": 0, "threshold": 2,
                           "estimated_wait_time_sec": 120 });
    assert_eq!((free.status, &free.body), (200, &expected));
    create(&t, "ORD-1", None).await;
    create(&t, "ORD-2", None).await;
    let busy = ask(HERE, None).await;
    assert_eq!(
        (busy.status, &busy.body["status"], &busy.body["retry_after_sec"]),
        (503, &json!("SERVER_BUSY"), &json!(60))
    );
    assert!(busy.body["oldest_waiting_since"].is_string(), "{busy:?}");
    let request = http_client().post(api.url("/api/v1/dispatcher/availability-check")).bearer_auth(&key);
    let place = json!({ "latitude": HERE.0, "longitude": HERE.1 });
    let raw = request.json(&json!({ "pickup_location": place, "service_type": "RIDE" })).send().await.unwrap();
    assert_eq!((raw.status().as_u16(), &raw.headers()["retry-after"]), (503, &"60".parse().unwrap()));
    // The members of RFC 9457 follow those of the requirement document, which include `status`.
    let code = "DISPATCHER_AREA_THRESHOLD_REACHED";
    assert_eq!((busy.error(), busy.text("type")), ((503, code), format!("/errors/{code}").as_str()));
    assert_eq!(
        (&busy.body["detail"], busy.text("instance")),
        (&busy.body["message"], "/api/v1/dispatcher/availability-check")
    );
    limit(&t, "JKT", LimitsChange { max_bypass_percentage: Some(50), ..LimitsChange::default() }).await;
    let loyal = ask(HERE, Some("ELITE")).await;
    assert_eq!((loyal.status, &loyal.body["bypass_reason"]), (200, &json!("LOYALTY_ELITE")));
    assert_eq!(ask((0.0, 0.0), None).await.error(), (400, "DISPATCHER_AREA_NOT_FOUND"));
    limit(&t, "JKT", LimitsChange { enabled: Some(false), ..LimitsChange::default() }).await;
    assert_eq!(ask(HERE, None).await.error(), (503, "DISPATCHER_AREA_DISABLED"));
    let driver = t.driver_key("D1").await;
    let body = json!({ "pickup_location": { "latitude": HERE.0, "longitude": HERE.1 }, "service_type": "RIDE" });
    let forbidden = api.post("/api/v1/dispatcher/availability-check", &driver, body).await;
    assert_eq!(forbidden.error(), (403, "FORBIDDEN"));
    flag(&t, |flag| flag.enabled_areas = vec!["BGR".into()]).await;
    let elsewhere = ask((0.0, 0.0), None).await;
    assert_eq!(
        (elsewhere.status, &elsewhere.body["status"]),
        (200, &json!("AVAILABLE")),
        "a pilot refuses no request elsewhere"
    );
}

#[tokio::test]
async fn without_redis_and_postgres_the_advice_says_that_nobody_knows() {
    let mut t = TestApp::start().await;
    full_at(&t, 1).await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    let body = json!({ "pickup_location": { "latitude": HERE.0, "longitude": HERE.1 }, "service_type": "RIDE" });
    let ask = async || api.post("/api/v1/dispatcher/availability-check", &key, body.clone()).await;
    assert_eq!(ask().await.status, 200);
    t.postgres.kill().await;
    tokio::time::sleep(millis(1_100)).await;
    assert_eq!(ask().await.status, 200, "Redis counts, and the key is believed while it cannot be revoked");
    t.redis.stop().await.unwrap();
    tokio::time::sleep(millis(300)).await;
    assert_eq!(ask().await.error(), (503, "DISPATCHER_SERVICE_UNAVAILABLE"));
    t.postgres.restart().await.unwrap();
    t.redis.restart().await.unwrap();
}
