//! Characters that Postgres cannot store, bodies that are too large, and guessed partner names.

use api::OPENAPI;
use reqwest::Method;
use serde_json::{Value, json};

use accounts::api_keys::AccountRole;
use settings::PartnerConfig;
use test_support::{Api, TestApp};

// Fault F19k
#[tokio::test]
async fn no_path_query_or_body_with_u0000_reaches_postgres() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let admin = t.key(AccountRole::Admin).await;
    for path in ["/api/v1/orders?job_id=%00", "/api/v1/alerts?kind=a%00b", "/api/v1/orders?job_id=a&x=%00"] {
        assert_eq!(api.get(path, &admin).await.error(), (422, "INVALID"), "{path}");
    }
    // Tests every place for a text: each part of each path, and each body.
    let spec: Value = serde_json::from_str(&OPENAPI).unwrap();
    for (path, methods) in spec["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            // The API reads the body only for an existing queue.
            let somewhere = path.replace("{queue}", jobs::queues::DISPATCH).replace(['{', '}'], "");
            if path.contains('{') {
                let nul = path.split('{').next().unwrap().to_owned() + "%00";
                let answer = api.send(method.clone(), &nul, &admin, "", "{}").await;
                assert_eq!(answer.error(), (422, "INVALID"), "{method} {nul}");
            }
            let query = format!("{somewhere}?any=%00");
            assert_eq!(api.send(method.clone(), &query, &admin, "", "{}").await.error(), (422, "INVALID"), "{query}");
            let body = r#"{"reason": "x\u0000", "order_id": "\u0000"}"#;
            let answer = api.send(method.clone(), &somewhere, &admin, "k-1", body).await;
            assert!(answer.status < 500 || path == "/readyz", "{method} {path}: {answer:?}");
            if method != Method::GET
                && method != Method::DELETE
                && !path.contains("callbacks")
                && !path.contains("voice")
            {
                // A path without a valid key id is refused before its body is read.
                let names_nothing = path.contains("/admin/keys/{id}");
                let refused = if names_nothing { 404 } else { 422 };
                assert_eq!(answer.error().0, refused, "{method} {path}: {answer:?}");
                assert!(names_nothing || answer.error().1 == "INVALID", "{method} {path}: {answer:?}");
            }
        }
    }
    // With an escaped backslash the text contains no U+0000.
    let order = json!({ "service_type": "RIDE", "pickup": { "latitude": -6.2, "longitude": 106.8 },
                        "customer_id": r"C-\u0000" });
    assert_eq!(api.post("/api/v1/orders", &admin, order).await.status, 201);
}

// Fault S20e
#[tokio::test]
async fn oversized_body_answer_names_the_limit() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let admin = t.key(AccountRole::Admin).await;
    let large = |kib: usize| format!("{{\"type\":\"{}\"}}", "x".repeat(kib * 1024));
    for (method, path, kib, said) in [
        (Method::POST, "/api/v1/orders", 65, "64 KiB"),
        (Method::POST, "/api/v1/orders/ORD-1/accept", 65, "64 KiB"),
        (Method::POST, "/api/v1/callbacks/bbd", 65, "64 KiB"),
        (Method::POST, "/api/v1/voice/calls/status", 65, "64 KiB"),
        (Method::PUT, "/api/v1/admin/dispatcher/areas", 16 * 1024, "16384 KiB"),
    ] {
        let answer = api.send(method, path, &admin, "", large(kib)).await;
        assert_eq!(answer.error(), (413, "TOO_LARGE"), "{path}");
        assert!(answer.text("message").contains(said), "{path}: {answer:?}");
    }
}

// Fault S20f
#[tokio::test]
async fn unknown_and_known_partners_answer_alike() {
    let t = TestApp::with(|c| {
        c.partners.insert("bbd".into(), PartnerConfig::with_url("http://127.0.0.1:9"));
    })
    .await;
    let api = Api::start(&t.app).await;
    let ask = async |path: &str| {
        let answer = api.post(path, "", json!({ "event_id": "e" })).await;
        (answer.status, answer.without_request())
    };
    let known = ask("/api/v1/callbacks/bbd").await;
    assert_eq!(known, ask("/api/v1/callbacks/unknown").await);
    assert_eq!((known.0, &known.1["error_code"]), (401, &json!("BAD_SIGNATURE")));
    assert_eq!(ask("/api/v1/voice/unknown/status").await.0, 401);
}
