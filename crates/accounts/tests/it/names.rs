//! Names of API keys: one name stands for one holder, and orders belong to it.

use serde_json::{Value, json};

use accounts::{
    api_keys::AccountRole,
    key_admin::{self, KeySelection},
};
use test_support::{Answer, Api, TestApp, ride_with_id};

const KEYS: &str = "/api/v1/admin/keys";

async fn make(api: &Api, root: &str, name: &str, more: Value) -> Answer {
    let mut new = json!({ "name": name, "role": "producer", "reason": "a test" });
    new.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    api.post(KEYS, root, new).await
}

// Rule F22: Names that look alike count as one name when a key is created, rotated or revoked.
#[tokio::test]
async fn look_alike_names_are_one_live_key() {
    let t = TestApp::start().await;
    let (api, root) = (Api::start(&t.app).await, t.key(AccountRole::Admin).await);
    let made = make(&api, &root, " Anna\u{a0}", json!({})).await;
    assert_eq!((made.status, made.text("name")), (201, "Anna"), "{made:?}");
    for name in ["Anna", "anna ", " anna", "ANNA", "anna\u{a0}", "ａｎｎａ"] {
        assert_eq!(make(&api, &root, name, json!({})).await.error(), (409, "KEY_EXISTS"), "{name:?}");
    }
    for name in ["an\u{200b}na", "anna\u{feff}", "an\u{ad}na", "\u{3164}", "\u{3000}", ""] {
        let refused = make(&api, &root, name, json!({})).await;
        assert_eq!(refused.error(), (422, "INVALID"), "{name:?}");
        assert!(refused.body["errors"].to_string().contains("name"), "{refused:?}");
    }
    let rotate = json!({ "name": "ANNA ", "reason": "lost" });
    let rotated = api.post(&format!("{KEYS}/rotate"), &root, rotate).await;
    assert_eq!((rotated.status, rotated.text("name")), (200, "Anna"), "orders belong to the name as it was");
    let listed = api.get(&format!("{KEYS}?name=aNN"), &root).await;
    assert_eq!(listed.body["keys"].as_array().unwrap().len(), 2, "{listed:?}");
    let name = KeySelection::Name("ａnna".to_owned());
    assert_eq!(key_admin::revoke_keys(&mut t.app.core.db.acquire().await.unwrap(), &name).await.unwrap().len(), 2);
    // The revoked key has the same name in another form.
    assert_eq!(make(&api, &root, "eve", json!({})).await.status, 201);
    t.sql("UPDATE api_keys SET revoked_at = dispatchq_now() WHERE name = 'eve'").await;
    assert_eq!(make(&api, &root, "EVE", json!({})).await.status, 201);
    let rotate = json!({ "name": "EVE", "reason": "lost" });
    assert_eq!(api.post(&format!("{KEYS}/rotate"), &root, rotate).await.status, 200);
    let which = KeySelection::Name("EVE".to_owned());
    assert_eq!(key_admin::revoke_keys(&mut t.app.core.db.acquire().await.unwrap(), &which).await.unwrap().len(), 2);
}

// Rule F23: If a producer's name owns orders, a new key with this name is created only if the caller confirms it. The
// audit trail records that.
#[tokio::test]
async fn name_that_owns_orders_needs_confirmation() {
    let t = TestApp::start().await;
    let (api, root) = (Api::start(&t.app).await, t.key(AccountRole::Admin).await);
    let first = make(&api, &root, "Shop", json!({})).await;
    assert_eq!(api.post("/api/v1/orders", first.text("key"), ride_with_id("ORD-1")).await.status, 201);
    t.sql("SELECT dispatchq_create_order('ORD-2', 'RIDE', -6.2, 106.8, owner => 'in sql')").await;
    let revoke = format!("{KEYS}/{}/revoke", first.text("id"));
    assert_eq!(api.post(&revoke, &root, json!({ "reason": "left" })).await.status, 200);
    for name in ["Shop", "shop", " SHOP", "in sql"] {
        assert_eq!(make(&api, &root, name, json!({})).await.error(), (409, "NAME_OWNS_ORDERS"), "{name}");
    }
    let refused = make(&api, &root, "shop", json!({ "take_over": false })).await;
    assert_eq!(refused.error(), (409, "NAME_OWNS_ORDERS"));
    let support = make(&api, &root, "shop", json!({ "role": "support" })).await;
    assert_eq!(support.status, 201, "a role that owns nothing: {support:?}");
    let revoke = format!("{KEYS}/{}/revoke", support.text("id"));
    assert_eq!(api.post(&revoke, &root, json!({ "reason": "left" })).await.status, 200);

    let second = make(&api, &root, "shop", json!({ "take_over": true })).await;
    assert_eq!((second.status, second.text("name")), (201, "Shop"), "{second:?}");
    assert_eq!(api.get("/api/v1/orders/ORD-1", second.text("key")).await.status, 200);
    let fresh = make(&api, &root, "kiosk", json!({ "take_over": true })).await;
    assert_eq!(fresh.status, 201, "nothing is taken over: {fresh:?}");
    let taken =
        "SELECT concat_ws(' ', action, subject, actor, reason) FROM audit_staff_actions WHERE action LIKE 'ORDERS%'";
    assert_eq!(t.texts(taken).await, ["ORDERS_TAKEN_OVER Shop admin:test-admin a test"]);
    // A rotation needs no confirmation.
    let rotate = json!({ "name": "shop", "reason": "lost" });
    assert_eq!(api.post(&format!("{KEYS}/rotate"), &root, rotate).await.status, 200);
}
