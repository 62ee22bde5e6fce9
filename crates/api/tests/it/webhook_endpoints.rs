//! Routes of webhook endpoints: answers, refusals, roles, and the audit record. Deliveries are tested in crates/notify.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use accounts::api_keys::AccountRole;
use settings::{Config, ProducerConfig};
use test_support::{Answer, Api, Receiver, TestApp};

const ENDPOINTS: &str = "/api/v1/webhook-endpoints";
const URL: &str = "https://shop.example.com/dispatchq";
/// Every change of an endpoint, with its smallest body.
const VERBS: [&str; 5] = ["test", "rotate", "pause", "resume", "replay"];

/// Declares an endpoint of the producer `declared`.
fn declare(config: &mut Config) {
    let producer = ProducerConfig {
        url: Some("https://declared.example.com/hook".to_owned()),
        secret: Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned()),
        events: vec![serde_json::from_value(json!("order.created")).unwrap()],
        ..ProducerConfig::default()
    };
    config.producers.insert("declared".to_owned(), producer);
}

struct Stage {
    t: TestApp,
    api: Api,
    /// Key of the producer `shop`.
    shop: String,
    admin: String,
}

impl Stage {
    async fn open() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(configure: impl FnOnce(&mut Config)) -> Self {
        let t = TestApp::with(configure).await;
        let (api, admin) = (Api::start(&t.app).await, t.key(AccountRole::Admin).await);
        let shop = t.key_named("shop", AccountRole::Producer, None).await;
        Self { t, api, shop, admin }
    }

    async fn create(&self, key: &str, body: Value) -> Answer {
        self.api.post(ENDPOINTS, key, body).await
    }

    /// Creates an endpoint of the producer `shop` and returns its id.
    async fn created(&self) -> String {
        let made = self.create(&self.shop, json!({ "url": URL })).await;
        assert_eq!(made.status, 201, "{made:?}");
        made.text("id").to_owned()
    }

    async fn post(&self, key: &str, id: &str, verb: &str) -> Answer {
        let mut body = json!({ "reason": "a test" });
        if verb == "replay" {
            body["after"] = json!("0-0");
        }
        self.api.post(&format!("{ENDPOINTS}/{id}/{verb}"), key, body).await
    }

    async fn delete(&self, key: &str, id: &str) -> Answer {
        let path = format!("{ENDPOINTS}/{id}?reason=a%20test");
        self.api.send(Method::DELETE, &path, key, "", "").await
    }

    async fn list(&self, key: &str, query: &str) -> Vec<Value> {
        let answer = self.api.get(&format!("{ENDPOINTS}{query}"), key).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["endpoints"].as_array().unwrap().clone()
    }
}

#[tokio::test]
async fn creation_answers_with_the_secret_once() {
    let stage = Stage::open().await;
    let body = json!({ "url": URL, "events": ["order.completed", "order.assigned", "order.assigned"] });
    let made = stage.create(&stage.shop, body).await;
    assert_eq!(made.status, 201, "{made:?}");
    let secret = made.text("secret");
    assert!(secret.starts_with("whsec_") && secret.len() == 50, "{secret}");
    let expected = json!({
        "id": made.text("id"), "url": URL, "events": ["order.assigned", "order.completed"], "producer": "shop",
        "state": "active", "declared": false, "paused_after": null, "created_at": "2030-01-01T08:00:00Z",
    });
    assert_eq!(stage.list(&stage.shop, "").await, std::slice::from_ref(&expected));
    let mut without = made.body.clone();
    without.as_object_mut().unwrap().remove("secret");
    assert_eq!(without, expected);
}

#[tokio::test]
async fn secrets_are_only_in_their_table() {
    let stage = Stage::open().await;
    let made = stage.create(&stage.shop, json!({ "url": URL })).await;
    let rotated = stage.post(&stage.shop, made.text("id"), "rotate").await;
    stage.post(&stage.shop, made.text("id"), "test").await;
    let tables = "SELECT query_to_xml(format('SELECT * FROM %I', relname), true, true, '')::text FROM pg_class
                  WHERE relkind IN ('r', 'v') AND relnamespace = 'public'::regnamespace AND relname <> 'webhook_endpoints'";
    let rows = stage.t.texts(tables).await.concat();
    for secret in [made.text("secret"), rotated.text("secret")] {
        assert!(!rows.contains(secret));
    }
    let origin = "SELECT new_value->>'url' FROM staff_actions WHERE action = 'ENDPOINT_CREATED'";
    assert_eq!(stage.t.texts(origin).await, ["https://shop.example.com/***"], "the path may be a secret");
}

#[tokio::test]
async fn secret_answers_are_not_cached() {
    let stage = Stage::open().await;
    let sent = stage.api.client.post(stage.api.url(ENDPOINTS)).bearer_auth(&stage.shop).json(&json!({ "url": URL }));
    assert_eq!(sent.send().await.unwrap().headers()["cache-control"], "no-store");
}

#[tokio::test]
async fn bad_endpoints_are_refused_with_their_member() {
    let stage = Stage::open().await;
    for (member, body) in [
        ("url", json!({})),
        ("url", json!({ "url": "" })),
        ("url", json!({ "url": "shop" })),
        ("url", json!({ "url": "http://shop.example.com/" })),
        ("url", json!({ "url": "http://169.254.169.254/x" })),
        ("url", json!({ "url": "https://169.254.169.254/x" })),
        ("url", json!({ "url": "https://10.0.0.1/" })),
        ("url", json!({ "url": "https://localhost/" })),
        ("url", json!({ "url": "http://127.0.0.1:9/" })),
        ("url", json!({ "url": "https://user:word@shop.example.com/" })),
        ("url", json!({ "url": format!("{URL}/{}", "a".repeat(2_000)) })),
        ("events", json!({ "url": URL, "events": ["order.lost"] })),
        ("events", json!({ "url": URL, "events": ["endpoint.test"] })),
        ("events", json!({ "url": URL, "events": "order.created" })),
        ("producer", json!({ "url": URL, "producer": "" })),
        ("reason", json!({ "url": URL, "reason": "" })),
        ("secret", json!({ "url": URL, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" })),
    ] {
        let refused = stage.create(&stage.shop, body.clone()).await;
        assert_eq!(refused.error(), (422, "INVALID"), "{body}: {refused:?}");
        assert!(refused.body["errors"].to_string().contains(member), "{body}: {refused:?}");
    }
    assert_eq!(stage.t.count("SELECT count(*) FROM webhook_endpoints").await, 0);
}

#[tokio::test]
async fn local_addresses_need_the_switch() {
    let stage = Stage::with(|config| config.http.local_webhooks = true).await;
    for url in ["http://127.0.0.1:9/", "http://localhost:9/", "http://[::1]:9/"] {
        assert_eq!(stage.create(&stage.shop, json!({ "url": url })).await.status, 201, "{url}");
    }
    for url in ["http://10.0.0.1/", "http://169.254.169.254/x", "http://shop.example.com/"] {
        assert_eq!(stage.create(&stage.shop, json!({ "url": url })).await.error(), (422, "INVALID"), "{url}");
    }
}

#[tokio::test]
async fn concurrent_creations_keep_the_limit() {
    let stage = Stage::open().await;
    let tries = join_all((0..16).map(|_| stage.create(&stage.shop, json!({ "url": URL })))).await;
    let made = tries.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(made, 10, "{tries:?}");
    let others = tries.iter().filter(|answer| answer.status != 201);
    assert!(others.clone().all(|answer| answer.error() == (409, "TOO_MANY_ENDPOINTS")), "{tries:?}");
    let other = stage.t.key_named("other", AccountRole::Producer, None).await;
    assert_eq!(stage.create(&other, json!({ "url": URL })).await.status, 201, "others have their own limit");
    let id = stage.list(&stage.shop, "").await[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(stage.delete(&stage.shop, &id).await.status, 204);
    assert_eq!(stage.create(&stage.shop, json!({ "url": URL })).await.status, 201);
}

#[tokio::test]
async fn endpoint_of_another_producer_is_not_found() {
    let stage = Stage::with(declare).await;
    let id = stage.created().await;
    let other = stage.t.key_named("other", AccountRole::Producer, None).await;
    let unknown = "01937c3e-8f00-7000-8000-000000000009";
    for id in [id.as_str(), unknown, "nonsense", "producer:declared", "producer:none"] {
        for verb in VERBS {
            assert_eq!(stage.post(&other, id, verb).await.error(), (404, "ENDPOINT_NOT_FOUND"), "{verb} {id}");
        }
        assert_eq!(stage.delete(&other, id).await.error(), (404, "ENDPOINT_NOT_FOUND"), "{id}");
        let deliveries = format!("{ENDPOINTS}/{id}/deliveries");
        assert_eq!(stage.api.get(&deliveries, &other).await.error(), (404, "ENDPOINT_NOT_FOUND"), "{id}");
    }
    assert_eq!(stage.list(&other, "").await, Vec::<Value>::new());
    assert_eq!(stage.list(&other, "?producer=shop").await, Vec::<Value>::new());
    let foreign = stage.create(&other, json!({ "url": URL, "producer": "shop" })).await;
    assert_eq!(foreign.error(), (403, "FORBIDDEN"));
    assert_eq!(stage.t.count("SELECT count(*) FROM webhook_endpoints WHERE state = 'active'").await, 1);
}

#[tokio::test]
async fn declared_endpoint_is_listed_and_unchangeable() {
    let stage = Stage::with(declare).await;
    let own = stage.t.key_named("declared", AccountRole::Producer, None).await;
    let declared = json!({
        "id": "producer:declared", "url": "https://declared.example.com/hook", "events": ["order.created"],
        "producer": "declared", "state": "active", "declared": true, "paused_after": null, "created_at": null,
    });
    assert_eq!(stage.list(&own, "").await, std::slice::from_ref(&declared));
    assert_eq!(stage.list(&stage.admin, "?producer=declared").await, [declared]);
    for key in [&own, &stage.admin] {
        for verb in VERBS {
            let refused = stage.post(key, "producer:declared", verb).await;
            assert_eq!(refused.error(), (409, "DECLARED_IN_CONFIG"), "{verb}");
        }
        assert_eq!(stage.delete(key, "producer:declared").await.error(), (409, "DECLARED_IN_CONFIG"));
    }
    assert_eq!(stage.create(&own, json!({ "url": URL })).await.status, 201, "next to the declared one");
}

#[tokio::test]
async fn only_admins_and_producers_manage_endpoints() {
    let stage = Stage::open().await;
    let id = stage.created().await;
    let driver = stage.t.driver_key("D1").await;
    for role in [AccountRole::Viewer, AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator] {
        let key = stage.t.key(role).await;
        for key in [&key, &driver] {
            assert_eq!(stage.api.get(ENDPOINTS, key).await.error(), (403, "FORBIDDEN"), "{role:?}");
            assert_eq!(stage.create(key, json!({ "url": URL })).await.error(), (403, "FORBIDDEN"), "{role:?}");
            for verb in VERBS {
                assert_eq!(stage.post(key, &id, verb).await.error(), (403, "FORBIDDEN"), "{role:?} {verb}");
            }
            assert_eq!(stage.delete(key, &id).await.error(), (403, "FORBIDDEN"), "{role:?}");
        }
    }
    for verb in VERBS {
        assert!(stage.post(&stage.admin, &id, verb).await.status < 300, "{verb}");
    }
    assert_eq!(stage.delete(&stage.admin, &id).await.status, 204);
}

#[tokio::test]
async fn staff_must_give_a_reason() {
    let stage = Stage::open().await;
    let id = stage.created().await;
    for (path, body) in [
        (ENDPOINTS.to_owned(), json!({ "url": URL })),
        (format!("{ENDPOINTS}/{id}/test"), json!({})),
        (format!("{ENDPOINTS}/{id}/rotate"), json!({ "reason": " " })),
        (format!("{ENDPOINTS}/{id}/pause"), json!({ "reason": null })),
        (format!("{ENDPOINTS}/{id}/resume"), json!({})),
        (format!("{ENDPOINTS}/{id}/replay"), json!({ "after": "0-0" })),
    ] {
        let refused = stage.api.post(&path, &stage.admin, body).await;
        assert_eq!(refused.error(), (422, "INVALID"), "{path}");
        assert_eq!(refused.body["errors"][0]["pointer"], "#/reason", "{path}: {refused:?}");
    }
    let deletion = format!("{ENDPOINTS}/{id}");
    let refused = stage.api.send(Method::DELETE, &deletion, &stage.admin, "", "").await;
    assert_eq!(refused.error(), (422, "INVALID"));
    assert_eq!(stage.t.count("SELECT count(*) FROM staff_actions WHERE actor LIKE 'admin:%'").await, 0);
}

#[tokio::test]
async fn each_change_has_an_audit_row() {
    let stage = Stage::open().await;
    let made = stage.create(&stage.admin, json!({ "url": URL, "producer": "shop", "reason": "a test" })).await;
    assert_eq!((made.status, made.text("producer")), (201, "shop"), "{made:?}");
    for verb in VERBS {
        let answer = stage.post(&stage.admin, made.text("id"), verb).await;
        let expected = if ["test", "replay"].contains(&verb) { 202 } else { 200 };
        assert_eq!(answer.status, expected, "{verb}: {answer:?}");
    }
    assert_eq!(stage.delete(&stage.admin, made.text("id")).await.status, 204);
    assert_eq!(stage.delete(&stage.admin, made.text("id")).await.error(), (404, "ENDPOINT_NOT_FOUND"));
    let words = ["CREATED", "TESTED", "ROTATED", "PAUSED", "RESUMED", "REPLAYED", "DELETED"];
    let rows = "SELECT concat_ws(' ', action, actor, reason, subject) FROM audit_staff_actions ORDER BY id";
    let id = made.text("id");
    assert_eq!(stage.t.texts(rows).await, words.map(|word| format!("ENDPOINT_{word} admin:test-admin a test {id}")));
}

#[tokio::test]
async fn producers_are_recorded_without_a_reason() {
    let stage = Stage::open().await;
    stage.created().await;
    let rows = "SELECT concat_ws(' ', action, actor, coalesce(reason, '-')) FROM staff_actions";
    assert_eq!(stage.t.texts(rows).await, ["ENDPOINT_CREATED producer:shop -"]);
}

#[tokio::test]
async fn list_is_paged_by_creation() {
    let stage = Stage::with(declare).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(stage.created().await);
    }
    let mut listed = Vec::new();
    let mut path = format!("{ENDPOINTS}?limit=2");
    loop {
        let page = stage.api.get(&path, &stage.admin).await;
        listed.extend(page.body["endpoints"].as_array().unwrap().iter().map(|e| e["id"].as_str().unwrap().to_owned()));
        let Some(next) = page.body["next_cursor"].as_str() else { break };
        path = format!("{ENDPOINTS}?limit=2&cursor={next}");
    }
    ids.insert(0, "producer:declared".to_owned());
    assert_eq!(listed, ids);
    for wrong in ["limit=0", "limit=501", "cursor=x", "more=1"] {
        assert_eq!(stage.api.get(&format!("{ENDPOINTS}?{wrong}"), &stage.admin).await.status, 422, "{wrong}");
    }
}

#[tokio::test]
async fn deliveries_list_each_try_newest_first() {
    let receiver = Receiver::start().await;
    let stage = Stage::with(|config| config.http.local_webhooks = true).await;
    let made = stage.create(&stage.shop, json!({ "url": receiver.url("/hook") })).await;
    let id = made.text("id");
    receiver.fail(reqwest::StatusCode::SERVICE_UNAVAILABLE, 1);
    let first = stage.post(&stage.shop, id, "test").await.text("event_id").to_owned();
    stage.t.run_for(test_support::secs(10)).await;
    let second = stage.post(&stage.shop, id, "test").await.text("event_id").to_owned();
    stage.t.run_due().await;
    let mut tries = Vec::new();
    let mut path = format!("{ENDPOINTS}/{id}/deliveries?limit=1");
    loop {
        let page = stage.api.get(&path, &stage.shop).await;
        assert_eq!(page.status, 200, "{page:?}");
        tries.extend(page.body["deliveries"].as_array().unwrap().clone());
        let Some(next) = page.body["next_cursor"].as_str() else { break };
        path = format!("{ENDPOINTS}/{id}/deliveries?limit=1&cursor={next}");
    }
    let told: Vec<_> = tries.iter().map(|t| (t["request"]["id"].as_str().unwrap(), t["answer"].clone())).collect();
    let accepted = json!({ "accepted": true, "error": null });
    let refused = json!({ "accepted": false, "error": "the receiver answered 503" });
    assert_eq!(told, [(second.as_str(), accepted.clone()), (first.as_str(), accepted), (first.as_str(), refused)]);
    assert_eq!(tries[2]["at"], "2030-01-01T08:00:00Z");
    assert_eq!(tries[2]["request"]["url"], receiver.url("/hook"));
    assert_eq!(tries[2]["request"]["body"], receiver.received()[0].body);
    for wrong in ["cursor=1", "cursor=1-x", "cursor=-1-1", "limit=0"] {
        let path = format!("{ENDPOINTS}/{id}/deliveries?{wrong}");
        assert_eq!(stage.api.get(&path, &stage.shop).await.error(), (422, "INVALID"), "{wrong}");
    }
}

#[tokio::test]
async fn bad_values_of_verbs_are_refused() {
    let stage = Stage::open().await;
    let id = stage.created().await;
    for (verb, body) in [
        ("rotate", json!({ "overlap_sec": -1 })),
        ("rotate", json!({ "overlap_sec": 2_592_001 })),
        ("rotate", json!({ "overlap_sec": "1" })),
        ("replay", json!({})),
        ("replay", json!({ "after": "" })),
        ("replay", json!({ "after": "1" })),
        ("replay", json!({ "after": "1-x" })),
        ("replay", json!({ "after": 1 })),
        ("pause", json!({ "more": 1 })),
    ] {
        let refused = stage.api.post(&format!("{ENDPOINTS}/{id}/{verb}"), &stage.shop, body.clone()).await;
        assert_eq!(refused.error(), (422, "INVALID"), "{verb} {body}");
    }
}
