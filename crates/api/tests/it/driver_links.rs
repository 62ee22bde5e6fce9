//! One-time links for the sign-in of drivers: callers, answers and the audit record.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use accounts::api_keys::AccountRole;
use settings::{Config, ProducerConfig};
use test_support::{Answer, Api, TestApp};

const LINKS: &str = "/api/v1/drivers/D1/sign-in-links";

fn with_page(config: &mut Config) {
    config.http.driver_page = true;
    config.http.public_url = "https://dispatch.example.com".to_owned();
    let trusted = ProducerConfig { driver_sign_in: true, ..ProducerConfig::default() };
    config.producers.insert("fleet".to_owned(), trusted);
}

async fn create_link(api: &Api, path: &str, key: &str) -> Answer {
    api.post(path, key, json!({ "reason": "asked by phone" })).await
}

#[tokio::test]
async fn link_has_its_code_and_expiry() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let key = t.key(AccountRole::Dispatcher).await;
    let made = create_link(&api, LINKS, &key).await;
    assert_eq!(made.status, 201, "{made:?}");
    let code = made.text("code");
    assert_eq!(made.text("url"), format!("https://dispatch.example.com/driver/sign-in#code={code}"));
    let expires_at: DateTime<Utc> = made.text("expires_at").parse().unwrap();
    assert_eq!(u64::try_from(expires_at.timestamp_millis()).unwrap(), t.now_ms() + 15 * 60 * 1000);
    assert_ne!(create_link(&api, LINKS, &key).await.text("code"), code);
    let raw = api.client.post(api.url(LINKS)).bearer_auth(&key).json(&json!({ "reason": "a test" })).send().await;
    assert_eq!(raw.unwrap().headers()["cache-control"], "no-store");
}

#[tokio::test]
async fn creation_is_recorded_without_the_code() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let made = create_link(&api, LINKS, &t.key(AccountRole::Operator).await).await;
    let rows = t.texts("SELECT a::text FROM staff_actions a WHERE action = 'DRIVER_SIGN_IN_LINK_CREATED'").await;
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    for text in ["operator:test-operator", "D1", "asked by phone", "expires_at"] {
        assert!(row.contains(text), "{text}: {row}");
    }
    let dump = t.texts("SELECT l::text FROM driver_sign_in_links l").await.concat() + row;
    let code = made.text("code");
    assert!(!dump.contains(code) && !dump.contains(&code.replace('-', "")), "{dump}");
}

#[tokio::test]
async fn only_some_callers_create_links() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    for (role, status) in [
        (AccountRole::Viewer, 403),
        (AccountRole::Support, 403),
        (AccountRole::Producer, 403),
        (AccountRole::Dispatcher, 201),
        (AccountRole::Operator, 201),
        (AccountRole::Admin, 201),
    ] {
        assert_eq!(create_link(&api, LINKS, &t.key(role).await).await.status, status, "{role:?}");
    }
    let driver = t.driver_key("D1").await;
    assert_eq!(create_link(&api, LINKS, &driver).await.error(), (403, "FORBIDDEN"));
    let fleet = t.key_named("fleet", AccountRole::Producer, None).await;
    assert_eq!(create_link(&api, LINKS, &fleet).await.status, 201, "with driver_sign_in");
    assert_eq!(t.count("SELECT count(*) FROM staff_actions").await, 4);
}

#[tokio::test]
async fn impossible_links_are_refused() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    let key = t.key(AccountRole::Operator).await;
    let unknown = create_link(&api, "/api/v1/drivers/D9/sign-in-links", &key).await;
    assert_eq!(unknown.error(), (404, "DRIVER_NOT_FOUND"));
    for body in [json!({}), json!({ "reason": "" }), json!({ "reason": null }), json!({ "reason": "x", "more": 1 })] {
        assert_eq!(api.post(LINKS, &key, body.clone()).await.error(), (422, "INVALID"), "{body}");
    }
    assert_eq!(api.post("/api/v1/drivers/D1/disable", &key, json!({ "reason": "a test" })).await.status, 200);
    assert_eq!(create_link(&api, LINKS, &key).await.error(), (404, "DRIVER_NOT_FOUND"), "disabled");

    let without = Api::start(&t.reconfigured(|config| config.http.driver_page = false)).await;
    assert_eq!(create_link(&without, LINKS, &key).await.error(), (409, "DRIVER_PAGE_OFF"));
    let page = without.get("/driver/sign-in", "").await;
    assert_eq!((page.status, &page.body["error_code"]), (404, &Value::from("NOT_FOUND")));
    assert_eq!(t.count("SELECT count(*) FROM driver_sign_in_links").await, 0);
}
