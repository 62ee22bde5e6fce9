//! The page of webhook endpoints: created with a secret that is shown once, tested, paused, replayed and deleted.

use super::{Browser, place};
use accounts::api_keys::AccountRole;
use serde_json::json;
use test_support::{Api, Receiver, TestApp};

const CREATE: &str = "/console/webhooks/create";
const REASON: [(&str, &str); 1] = [("reason", "a test")];

/// Returns the secret that a page shows.
fn shown_secret(page: &str) -> String {
    let (_, rest) = page.split_once("id=\"secret\">").unwrap_or_else(|| panic!("no secret: {page}"));
    // Templates write `+` and `=` as they are.
    rest.split('<').next().unwrap().replace("&#43;", "+").replace("&#61;", "=")
}

async fn stage() -> (TestApp, Api, Browser, Receiver) {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| config.http.local_webhooks = true).await;
    let api = Api::start(&t.app).await;
    let admin = Browser::signed_in(&t, &api, AccountRole::Admin).await;
    (t, api, admin, receiver)
}

/// Creates an endpoint with the form. Returns its id and its secret.
async fn create(t: &TestApp, admin: &Browser, url: &str) -> (String, String) {
    let form = [("url", url), ("producer", "test"), ("events", "order.created"), ("reason", "a test")];
    let made = admin.post(CREATE, &form).await;
    assert_eq!((made.status().as_u16(), made.headers()["cache-control"].to_str().unwrap()), (200, "no-store"));
    let secret = shown_secret(&made.text().await.unwrap());
    (t.texts("SELECT id::text FROM webhook_endpoints ORDER BY id DESC LIMIT 1").await.remove(0), secret)
}

#[tokio::test]
async fn new_endpoint_shows_its_secret_once() {
    let (t, _api, admin, receiver) = stage().await;
    let (id, secret) = create(&t, &admin, &receiver.url("/hook")).await;
    assert_eq!(t.texts("SELECT secret FROM webhook_endpoints").await, std::slice::from_ref(&secret));
    for path in
        ["/console/webhooks", "/console/webhooks?producer=test", &format!("/console/webhooks/{id}"), "/console/audit"]
    {
        assert!(!admin.text(path).await.contains(&secret), "{path}");
    }
    let listed = admin.text("/console/webhooks?producer=test").await;
    assert!(listed.contains(&id) && listed.contains("order.created"), "{listed}");
    assert!(!admin.text("/console/webhooks?producer=other").await.contains(&id));
    assert_eq!(place(&admin.get(CREATE).await), "/console/webhooks");
    let rotate = format!("/console/webhooks/{id}/rotate");
    let rotated = shown_secret(&admin.post(&rotate, &REASON).await.text().await.unwrap());
    assert_ne!(rotated, secret);
    let secrets = "SELECT secret || ' ' || secret_previous FROM webhook_endpoints";
    assert_eq!(t.texts(secrets).await, [format!("{rotated} {secret}")]);
    assert_eq!(place(&admin.get(&rotate).await), "/console/webhooks");
}

#[tokio::test]
async fn endpoint_is_tested_and_lists_its_deliveries() {
    let (t, _api, admin, receiver) = stage().await;
    let (id, _) = create(&t, &admin, &receiver.url("/hook")).await;
    let page = format!("/console/webhooks/{id}");
    assert!(admin.text(&page).await.contains("Nothing was sent"));
    receiver.fail(reqwest::StatusCode::SERVICE_UNAVAILABLE, 1);
    let tested = admin.post(&format!("{page}/test"), &REASON).await;
    assert_eq!(place(&tested), "/console/webhooks?did=webhook-tested");
    t.run_for(test_support::secs(10)).await;
    let shown = admin.text(&page).await;
    for text in ["endpoint.test", "the receiver answered 503", "Accepted", &receiver.received()[0].id] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert_eq!(admin.get("/console/webhooks/nonsense").await.status(), 404);
    assert_eq!(admin.get(&format!("{page}?after=x")).await.status(), 422);
}

#[tokio::test]
async fn endpoint_is_paused_resumed_replayed_and_deleted() {
    let (t, _api, admin, receiver) = stage().await;
    let (id, _) = create(&t, &admin, &receiver.url("/hook")).await;
    let path = |action: &str| format!("/console/webhooks/{id}/{action}");
    assert_eq!(admin.post(&path("pause"), &[("reason", "")]).await.status(), 422);
    assert_eq!(place(&admin.post(&path("pause"), &REASON).await), "/console/webhooks?did=webhook-paused");
    let paused = admin.text("/console/webhooks").await;
    assert!(paused.contains("Resume endpoint") && !paused.contains("Pause endpoint"), "{paused}");
    assert_eq!(place(&admin.post(&path("resume"), &REASON).await), "/console/webhooks?did=webhook-resumed");
    assert_eq!(admin.post(&path("replay"), &[("after", "x"), ("reason", "a test")]).await.status(), 422);
    let replayed = admin.post(&path("replay"), &[("after", "0-0"), ("reason", "a test")]).await;
    assert_eq!(place(&replayed), "/console/webhooks?did=webhook-replayed");
    assert_eq!(t.count("SELECT count(*) FROM webhook_replays").await, 1);
    assert_eq!(place(&admin.post(&path("delete"), &REASON).await), "/console/webhooks?did=webhook-deleted");
    assert_eq!(admin.post(&path("delete"), &REASON).await.status(), 404);
    assert!(!admin.text("/console/webhooks").await.contains(&id));
    let rows = "SELECT concat_ws(' ', action, actor, reason) FROM audit_staff_actions ORDER BY id";
    let words = ["CREATED", "PAUSED", "RESUMED", "REPLAYED", "DELETED"];
    assert_eq!(t.texts(rows).await, words.map(|word| format!("ENDPOINT_{word} admin:test-admin a test")));
}

#[tokio::test]
async fn only_admins_see_endpoints_and_bad_ones_are_refused() {
    let (t, api, admin, _receiver) = stage().await;
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    assert_eq!(operator.get("/console/webhooks").await.status(), 403);
    assert!(!operator.text("/console").await.contains("/console/webhooks"));
    let good = [("url", "https://shop.example.com/"), ("producer", "test"), ("events", ""), ("reason", "a test")];
    assert_eq!(operator.post(CREATE, &good).await.status(), 403);
    for (at, wrong) in [(0, ""), (0, "http://169.254.169.254/x"), (1, ""), (2, "order.lost"), (3, "")] {
        let mut form = good;
        form[at].1 = wrong;
        assert_eq!(admin.post(CREATE, &form).await.status(), 422, "{form:?}");
    }
    assert_eq!(t.count("SELECT count(*) FROM webhook_endpoints").await, 0);
}

#[tokio::test]
async fn producer_sees_its_endpoint_of_the_console() {
    let (t, api, admin, receiver) = stage().await;
    let (id, _) = create(&t, &admin, &receiver.url("/hook")).await;
    let own = t.key_named("test", AccountRole::Producer, None).await;
    let listed = api.get("/api/v1/webhook-endpoints", &own).await;
    assert_eq!(listed.body["endpoints"][0]["id"], json!(id));
}
