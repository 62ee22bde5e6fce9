//! The link for the customer in the answer to a creation.

use serde_json::{Value, json};

use accounts::api_keys::AccountRole;
use settings::Config;
use test_support::{Answer, Api, TestApp, admission, ride_with_id};

const ORDERS: &str = "/api/v1/orders";
const PUBLIC: &str = "https://dispatch.example.com";

fn with_tracking(config: &mut Config) {
    config.http.tracking = true;
    config.http.public_url = PUBLIC.to_owned();
}

/// Returns the token of a created order.
fn token_of(made: &Answer) -> &str {
    assert_eq!(made.status, 201, "{made:?}");
    made.text("tracking_url").strip_prefix("https://dispatch.example.com/track/").unwrap()
}

#[tokio::test]
async fn creation_has_an_unguessable_link() {
    let t = TestApp::with(with_tracking).await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    let mut tokens = Vec::new();
    for id in ["ORD-1", "ORD-2"] {
        let made = api.post(ORDERS, &shop, ride_with_id(id)).await;
        let token = token_of(&made).to_owned();
        assert!(token.len() >= 43 && token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)), "{token}");
        assert!(!token.contains(id), "{token}");
        tokens.push(token);
    }
    assert_ne!(tokens[0], tokens[1]);
    // Staff get the link too.
    let made = api.post(ORDERS, &t.key(AccountRole::Dispatcher).await, ride_with_id("ORD-3")).await;
    assert!(!tokens.contains(&token_of(&made).to_owned()));
}

#[tokio::test]
async fn repeated_creation_has_the_same_link() {
    let t = TestApp::with(with_tracking).await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    let create = async |api: &Api, key: &str, id: &str| api.post_once(ORDERS, &shop, key, ride_with_id(id)).await;
    let first = create(&api, "k1", "ORD-1").await;
    // Another process, with the answer of the first one.
    let other = Api::start(&t.reconfigured(|_| {})).await;
    for api in [&api, &other] {
        let again = create(api, "k1", "ORD-1").await;
        assert!(again.replayed && token_of(&again) == token_of(&first), "{again:?}");
    }
    // With areas the key has its own statements.
    admission::full_for(&t, "RIDE", 5).await;
    let first = create(&api, "k2", "ORD-2").await;
    let again = create(&api, "k2", "ORD-2").await;
    assert!(again.replayed && token_of(&again) == token_of(&first), "{again:?}");
    let stored = t.texts("SELECT body::text FROM idempotency_keys").await.concat();
    assert!(stored.contains("ORD-2") && !stored.contains("tracking_url"), "{stored}");
}

#[tokio::test]
async fn link_appears_only_in_the_creation() {
    let t = TestApp::with(with_tracking).await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    let made = api.post(ORDERS, &shop, ride_with_id("ORD-1")).await;
    let token = token_of(&made);
    for path in ["/api/v1/orders/ORD-1", ORDERS, "/api/v1/orders/ORD-1/timeline", "/api/v1/events"] {
        let answer = api.get(path, &shop).await;
        let body = answer.body.to_string();
        assert!(answer.status == 200 && !body.contains("tracking_url") && !body.contains(token), "{path}: {body}");
    }
    let without = Api::start(&t.reconfigured(|config| config.http.tracking = false)).await;
    let made = without.post(ORDERS, &shop, ride_with_id("ORD-2")).await;
    assert_eq!((made.status, &made.body["tracking_url"]), (201, &Value::Null));
}

#[tokio::test]
async fn later_order_with_the_same_id_has_another_link() {
    let t = TestApp::with(with_tracking).await;
    let api = Api::start(&t.app).await;
    let shop = t.key(AccountRole::Producer).await;
    let first = api.post(ORDERS, &shop, ride_with_id("ORD-1")).await;
    let cancelled = api.post("/api/v1/orders/ORD-1/cancel", &shop, json!({})).await;
    assert_eq!(cancelled.status, 200, "{cancelled:?}");
    t.advance(test_support::secs(60)).await;
    for table in ["offers", "orders"] {
        t.sql(&format!("DELETE FROM {table}")).await;
    }
    let second = api.post(ORDERS, &shop, ride_with_id("ORD-1")).await;
    assert_ne!(token_of(&first), token_of(&second));
}
