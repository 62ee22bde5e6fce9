//! Each request has an id and is counted, and refused callers are logged.

use serde_json::json;

use accounts::api_keys::{self, AccountRole};
use test_support::{Api, Counting, LogLines, TestApp, http_client};

// Fault S10
#[tokio::test]
async fn refusal_logs_reason_and_request_id() {
    let lines = LogLines::default();
    tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::WARN).with_writer(lines.clone()).init();
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let wrong = api_keys::generate_key();
    let client = http_client();
    let ask = async |key: &str, id: &str| {
        let request = client.get(api.url("/api/v1/orders/ORD-1")).bearer_auth(key).header("x-request-id", id);
        request.send().await.unwrap()
    };
    let answer = ask(&wrong, "shop-4711").await;
    assert_eq!((answer.status().as_u16(), &answer.headers()["x-request-id"]), (401, &"shop-4711".parse().unwrap()));
    let said = lines.with("A caller was refused");
    assert_eq!(said.len(), 1, "{said:?}");
    for part in [
        "shop-4711",
        "UNAUTHENTICATED",
        "the key is not valid: it is unknown, expired or revoked",
        "127.0.0.1",
        "/api/v1/orders/{id}",
    ] {
        assert!(said[0].contains(part), "{part}: {said:?}");
    }
    assert!(!said[0].contains(&wrong), "no line carries a key");
    // Only a sample of repeated refusals is logged.
    for n in 0..20 {
        assert_eq!(ask(&wrong, &format!("again-{n}")).await.status(), 401);
    }
    assert_eq!(lines.with("A caller was refused").len(), 1);
    // Another reason is logged on another line.
    let viewer = t.key(AccountRole::Viewer).await;
    let order = json!({ "service_type": "RIDE", "pickup": { "latitude": -6.2, "longitude": 106.8 } });
    assert_eq!(api.post("/api/v1/orders", &viewer, order).await.status, 403);
    assert_eq!(lines.with("FORBIDDEN").len(), 1);
    let made = ask(&viewer, "one two").await;
    let made = made.headers()["x-request-id"].to_str().unwrap();
    assert!(made.parse::<uuid::Uuid>().is_ok(), "an id that cannot stand in a log is replaced: {made}");
}

// Fault S10
#[tokio::test]
async fn requests_are_counted_by_route_and_status() {
    let counting = Counting::start();
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.order("ORD-1").await;
    let key = t.key(AccountRole::Producer).await;
    for path in ["/api/v1/orders/ORD-1", "/api/v1/orders/ORD-1", "/api/v1/orders/ORD-404", "/nowhere/at/all"] {
        let answer = api.send_raw(path, &key).await;
        assert!(answer.headers().contains_key("x-request-id"), "{path}");
        assert_eq!(answer.headers()["dispatchq-version"], env!("CARGO_PKG_VERSION"), "{path}");
    }
    assert_eq!(api.get("/api/v1/orders/ORD-1", "").await.status, 401);
    let seen = counting.read();
    let count = |route: &str, status: &str| {
        let series = format!(r#"dispatchq_http_requests_total{{method="GET",route="{route}",status="{status}"}}"#);
        seen.value(&series)
    };
    assert_eq!(["200", "404", "401"].map(|status| count("/api/v1/orders/{id}", status)), [2.0, 1.0, 1.0]);
    assert_eq!(count("none", "404"), 1.0);
    let timed = r#"dispatchq_http_request_duration_seconds_count{method="GET",route="/api/v1/orders/{id}"}"#;
    assert_eq!(seen.value(timed), 4.0);
}

/// The library that logs Postgres statements has no access to requests or orders.
#[tokio::test]
async fn every_line_names_its_request_or_job_and_its_order() {
    let lines = LogLines::default();
    tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::DEBUG).with_writer(lines.clone()).init();
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Admin).await;
    let cancel = http_client().post(api.url("/api/v1/orders/ORD-1/cancel")).bearer_auth(key);
    let answer = cancel.header("x-request-id", "shop-4711").json(&json!({})).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let writes = lines.with("-- write change");
    let by_job = writes.iter().any(|line| line.contains("job{job.id=dispatch:ORD-1:1}:change{order.id=ORD-1}"));
    let by_request = writes.iter().any(|line| line.contains(r#"request{id="shop-4711"}:change{order.id=ORD-1}"#));
    assert!(by_job && by_request, "{writes:#?}");
}
