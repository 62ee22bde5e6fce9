//! Pages of a person whose key has a scope.

use super::stage::{ACTIONS, Browser, PAGES};
use accounts::api_keys::{self, AccountRole};
use test_support::{Api, TestApp};

const STAFF: [AccountRole; 5] =
    [AccountRole::Viewer, AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator, AccountRole::Admin];
/// Pages that are limited to the scope, and a text of an order in it.
const LIMITED: [(&str, &str); 8] = [
    ("/console/orders", "SEEN-OPEN"),
    ("/console/orders/SEEN-OPEN", "SEEN-OPEN"),
    ("/console/orders/SEEN-OPEN/contents", "SEEN-OPEN"),
    ("/console/desk", "SEEN-OPEN"),
    ("/console/desk?order=SEEN-OPEN", "SEEN-OPEN"),
    ("/console/refunds", "SEEN-OWED"),
    ("/console/refunds.csv", "SEEN-OWED"),
    ("/console/alerts?show=all", "SEEN-OPEN"),
];

/// Creates a waiting order and an owed refund in the area of the scope and outside of it.
async fn lay_out() -> TestApp {
    let t = TestApp::with_seen_and_hidden_orders().await;
    t.sql(
        "UPDATE orders SET area_id = split_part(id, '-', 1), owner = split_part(id, '-', 1) || '-shop',
                customer_id = split_part(id, '-', 1) || '-CUS'",
    )
    .await;
    t
}

/// Signs in with a key of this role that reads only the area SEEN.
async fn sign_in(t: &TestApp, api: &Api, role: AccountRole) -> Browser {
    let key = t.key(role).await;
    let id = api_keys::find_key(&t.app.core.db, &key).await.unwrap().unwrap().id;
    t.sql(&format!("UPDATE api_keys SET scope = '{{\"areas\": [\"SEEN\"]}}' WHERE id = '{id}'")).await;
    let mut browser = Browser::new(api);
    let answer = browser.post("/console/login", &[("key", &key)]).await;
    assert_eq!(answer.status(), 303, "{role:?}");
    browser.take_cookie(&answer);
    browser
}

#[tokio::test]
async fn no_page_shows_an_order_outside_of_the_scope() {
    let t = lay_out().await;
    let api = Api::start(&t.app).await;
    let about_hidden = [
        "/console/orders/HIDDEN-OPEN",
        "/console/orders/HIDDEN-OPEN/contents",
        "/console/desk?order=HIDDEN-OPEN",
        "/console/orders?q=HIDDEN-CUS",
        "/console/orders?q=HIDDEN-OPEN",
        "/console/drivers/D1",
        "/console/areas/HIDDEN",
    ];
    for role in STAFF {
        let browser = sign_in(&t, &api, role).await;
        for path in PAGES.into_iter().chain(about_hidden) {
            let answer = browser.get(path).await;
            let status = answer.status();
            assert!(status.as_u16() < 500, "{role:?} {path}: {status}");
            let asked = path.split(['/', '=']).next_back().unwrap();
            let text = answer.text().await.unwrap().replace(asked, "");
            assert!(!text.contains("HIDDEN"), "{role:?} {path}: {text}");
        }
    }
}

#[tokio::test]
async fn limited_pages_show_orders_of_the_scope() {
    let t = lay_out().await;
    let api = Api::start(&t.app).await;
    let browser = sign_in(&t, &api, AccountRole::Dispatcher).await;
    for (path, text) in LIMITED {
        assert!(browser.text(path).await.contains(text), "{path}");
    }
    assert_eq!(browser.text("/console/scheduled").await.matches("HIDDEN").count(), 0);
    assert_eq!(super::stage::place(&browser.get("/console").await), "/console/orders");
}

#[tokio::test]
async fn action_outside_of_the_scope_changes_nothing() {
    let t = lay_out().await;
    let api = Api::start(&t.app).await;
    let browser = sign_in(&t, &api, AccountRole::Admin).await;
    let alert = t.texts("SELECT id::text FROM alerts WHERE order_id = 'HIDDEN-OWED'").await.remove(0);
    let before = t.dump().await;
    // Saved filters belong to the person.
    for (path, form) in ACTIONS.into_iter().filter(|(path, _)| !path.contains("/filters/")) {
        let path = path.replace("ORD-1", "HIDDEN-OPEN").replace("OWED", "HIDDEN-OWED");
        let path = path.replace("/alerts/1/", &format!("/alerts/{alert}/"));
        let status = browser.post(&path, form).await.status().as_u16();
        assert!([403, 404].contains(&status), "{path}: {status}");
    }
    assert_eq!(t.dump().await, before);
}

#[tokio::test]
async fn admin_sets_the_scope_of_a_key() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Viewer).await;
    let id = api_keys::find_key(&t.app.core.db, &key).await.unwrap().unwrap().id;
    let browser = Browser::signed_in(&t, &api, AccountRole::Admin).await;
    let form = [("scope_service_types", "RIDE, RENT"), ("reason", "a test")];
    let answer = browser.post(&format!("/console/keys/{id}/scope"), &form).await;
    assert_eq!(answer.status(), 303);
    let scope = t.texts(&format!("SELECT scope::text FROM api_keys WHERE id = '{id}'")).await;
    assert_eq!(scope, [r#"{"service_types": ["RIDE", "RENT"]}"#]);
    assert!(browser.text("/console/keys").await.contains("viewer (RIDE, RENT)"));
    let refused =
        browser.post(&format!("/console/keys/{id}/scope"), &[("scope_partners", "unknown"), ("reason", "x")]).await;
    assert_eq!(refused.status(), 422);
}
