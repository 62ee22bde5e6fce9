//! Keys on the admin page: created and shown once, listed, revoked.

use super::{Browser, place};
use accounts::api_keys::{AccountRole, is_well_formed};
use test_support::{Api, TestApp, eventually};

const CREATE: &str = "/console/keys/create";
const WATI: [(&str, &str); 4] =
    [("name", "wati"), ("role", "dispatcher"), ("days", "30"), ("reason", "begins on Monday")];

/// Returns the key that a page shows.
fn shown_key(page: &str) -> String {
    let (_, rest) = page.split_once("id=\"new-key\">").unwrap_or_else(|| panic!("no key: {page}"));
    rest.split('<').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_key_is_made_shown_once_and_revoked() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let admin = Browser::signed_in(&t, &api, AccountRole::Admin).await;
    let made = admin.post(CREATE, &WATI).await;
    assert_eq!((made.status().as_u16(), made.headers()["cache-control"].to_str().unwrap()), (200, "no-store"));
    let key = shown_key(&made.text().await.unwrap());
    assert!(is_well_formed(&key), "{key}");
    assert_eq!(api.get("/api/v1/orders", &key).await.status, 200);
    let kept = "SELECT concat_ws(' ', name, role, expires_at - created_at) FROM api_keys WHERE name = 'wati'";
    assert_eq!(t.texts(kept).await, ["wati dispatcher 30 days"]);

    // Sending the form again creates no second key, and the address is that of the list.
    let again = admin.post(CREATE, &WATI).await;
    assert_eq!(again.status(), 409);
    assert!(again.text().await.unwrap().contains("Choose another name"));
    assert_eq!(t.count("SELECT count(*) FROM api_keys WHERE name = 'wati'").await, 1);
    assert_eq!(place(&admin.get(CREATE).await), "/console/keys");
    for path in ["/console/keys", "/console/keys?name=wat&role=dispatcher", "/console/audit"] {
        let page = admin.text(path).await;
        assert!(page.contains("wati") && !page.contains(&key), "{path}: {page}");
    }
    assert!(!admin.text("/console/keys?role=viewer").await.contains("wati"));

    let mut wati = Browser::new(&api);
    let entered = wati.post("/console/login", &[("key", &key)]).await;
    wati.take_cookie(&entered);
    wati.text("/console/desk").await;
    let id = &t.texts("SELECT id::text FROM api_keys WHERE name = 'wati'").await[0];
    let revoke = format!("/console/keys/{id}/revoke");
    assert_eq!(admin.post(&revoke, &[("reason", "")]).await.status(), 422);
    let revoked = admin.post(&revoke, &[("reason", "a laptop was lost")]).await;
    assert_eq!(place(&revoked), "/console/keys?did=key-revoked");
    assert_eq!(admin.post(&revoke, &[("reason", "again")]).await.status(), 404);
    assert_eq!(wati.get("/console/desk").await.status(), 303, "the session ended with its key");
    eventually("the key opens nothing", async || api.get("/api/v1/orders", &key).await.status == 401).await;
    assert!(!admin.text("/console/keys").await.contains("wati"));
    let all = admin.text("/console/keys?show=all").await;
    assert!(all.contains("wati") && all.contains("Revoked") && !all.contains(&revoke), "{all}");
    let recorded = t.texts("SELECT concat_ws(' ', action, actor, reason) FROM audit_staff_actions ORDER BY id").await;
    assert_eq!(
        recorded,
        ["KEY_CREATED admin:test-admin begins on Monday", "KEY_REVOKED admin:test-admin a laptop was lost"]
    );
}

// Rule F5: The console creates a driver's key only for a driver that exists.
// Rule F7: The console applies the rule of HTTP to reasons.
#[tokio::test]
async fn only_admins_make_keys_and_only_valid_ones() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let admin = Browser::signed_in(&t, &api, AccountRole::Admin).await;
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    let before = t.count("SELECT count(*) FROM api_keys").await;
    for form in [
        [("name", ""), ("role", "viewer"), ("driver_id", ""), ("days", ""), ("reason", "a test")],
        [("name", "x"), ("role", "boss"), ("driver_id", ""), ("days", ""), ("reason", "a test")],
        [("name", "x"), ("role", "driver"), ("driver_id", ""), ("days", ""), ("reason", "a test")],
        [("name", "x"), ("role", "viewer"), ("driver_id", "D1"), ("days", ""), ("reason", "a test")],
        [("name", "x"), ("role", "viewer"), ("driver_id", ""), ("days", "0"), ("reason", "a test")],
        [("name", "x"), ("role", "viewer"), ("driver_id", ""), ("days", "4000"), ("reason", "a test")],
        [("name", "x"), ("role", "viewer"), ("driver_id", ""), ("days", ""), ("reason", "")],
        [("name", "x"), ("role", "viewer"), ("driver_id", ""), ("days", ""), ("reason", "\u{200b}")],
        [("name", "x"), ("role", "driver"), ("driver_id", "No Such"), ("days", ""), ("reason", "a test")],
        [("name", "x"), ("role", "driver"), ("driver_id", "NOSUCH"), ("days", ""), ("reason", "a test")],
    ] {
        assert_eq!(admin.post(CREATE, &form).await.status(), 422, "{form:?}");
    }
    assert_eq!(operator.post(CREATE, &WATI).await.status(), 403);
    assert_eq!(operator.get("/console/keys").await.status(), 403);
    assert!(!operator.text("/console").await.contains("/console/keys"));
    assert_eq!(t.count("SELECT count(*) FROM api_keys").await, before);
    assert_eq!(t.count("SELECT count(*) FROM staff_actions").await, 0);
}
