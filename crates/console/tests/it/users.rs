//! Users who receive messages, edited by admins.

use super::{Browser, place};
use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp};

const SAVE: &str = "/console/users/save";

fn user<'a>(id: &'a str, role: &'a str, channel: &'a str, email: &'a str) -> [(&'a str, &'a str); 6] {
    [
        ("id", id),
        ("name", "Anna"),
        ("role", role),
        ("channel", channel),
        ("email", email),
        ("reason", "begins on Monday"),
    ]
}

#[tokio::test]
async fn an_admin_adds_disables_and_removes_a_user() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let admin = Browser::signed_in(&t, &api, AccountRole::Admin).await;
    assert!(admin.text("/console/users").await.contains("No users"));
    for (id, role, channel, email) in [
        ("an na", "dispatcher", "log", ""),
        ("anna", "viewer", "log", ""),
        ("anna", "dispatcher", "pigeon", ""),
        ("anna", "dispatcher", "log", "anna"),
    ] {
        let refused = admin.post(SAVE, &user(id, role, channel, email)).await;
        assert_eq!(refused.status(), 422, "{id} {role} {channel} {email}");
    }
    let saved = admin.post(SAVE, &user("anna", "dispatcher", "log", "anna@example.com")).await;
    assert_eq!((saved.status().as_u16(), place(&saved)), (303, "/console/users?did=user-saved"));
    let page = admin.text("/console/users?did=user-saved").await;
    assert!(page.contains("anna@example.com") && page.contains("</b>Receives messages</span>"), "{page}");

    let disabled = "SELECT count(*) FROM users WHERE disabled_at IS NOT NULL";
    for (word, deed, is_disabled) in [("disable", "user-disabled", 1), ("enable", "user-enabled", 0)] {
        let done = admin.post(&format!("/console/users/anna/{word}"), &[("reason", "on leave")]).await;
        assert_eq!(place(&done), format!("/console/users?did={deed}"));
        assert_eq!(t.count(disabled).await, is_disabled);
        assert_eq!(admin.text("/console/users").await.contains("</b>Disabled</span>"), is_disabled == 1);
    }
    assert_eq!(admin.post("/console/users/anna/promote", &[("reason", "a test")]).await.status(), 404);
    assert_eq!(admin.post("/console/users/budi/disable", &[("reason", "a test")]).await.status(), 404);
    assert_eq!(admin.post("/console/users/anna/remove", &[]).await.status(), 422, "without a reason");
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    assert_eq!(operator.get("/console/users").await.status(), 403);
    assert_eq!(operator.post("/console/users/anna/remove", &[("reason", "a test")]).await.status(), 403);
    let removed = admin.post("/console/users/anna/remove", &[("reason", "left the company")]).await;
    assert_eq!(place(&removed), "/console/users?did=user-removed");
    assert_eq!(t.count("SELECT count(*) FROM users").await, 0);
    assert_eq!(
        t.texts("SELECT concat_ws(' ', action, subject, actor, reason) FROM audit_staff_actions ORDER BY id").await,
        [
            "USER_SAVED anna admin:test-admin begins on Monday",
            "USER_DISABLED anna admin:test-admin on leave",
            "USER_ENABLED anna admin:test-admin on leave",
            "USER_REMOVED anna admin:test-admin left the company"
        ]
    );
}
