//! Long upkeep over HTTP: cleanup, reconciliation and erasures in several requests.

use serde_json::{Value, json};

use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp};

#[tokio::test]
async fn wrong_cursor_starts_no_work() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    t.sql("UPDATE orders SET customer_id = 'C-1'").await;
    let api = Api::start(&t.app).await;
    let admin = t.key(AccountRole::Admin).await;
    let erasure = json!({ "subject": "customer", "subject_id": "C-1", "pseudonym": null, "reason": "request 1",
                          "actor": "admin:root", "erased_at": "2026-01-09T08:00:00Z", "orders": null });
    let erase =
        |dry_run: bool| json!({ "subject": "customer", "id": "C-1", "reason": "request 1", "dry_run": dry_run });
    let repeat = json!({ "erasure": erasure, "dry_run": false });
    // Beyond the times of chrono and of Postgres, a time of no erasure, and positions that no scan reaches.
    for (path, body, cursor) in [
        ("reconciliation", json!({}), "9223372036854775807"),
        ("reconciliation", json!({}), "-377705116800000000"),
        ("reconciliation", json!({}), "soon"),
        ("cleanup", json!({ "dry_run": false }), "1:9223372036854775807:x"),
        ("erasures", erase(false), "9223372036854775807"),
        ("erasures", erase(false), "1767945600000000"),
        ("erasures", erase(true), "1767945600000000"),
        ("erasures/repeat", repeat.clone(), r#"{"table":"rankings","after":[],"orders":0}"#),
        ("erasures/repeat", repeat.clone(), r#"{"table":"other","after":[],"orders":0}"#),
        ("erasures/repeat", repeat, r#"{"table":null,"after":[],"orders":-1}"#),
    ] {
        let mut body: Value = body;
        body["cursor"] = json!(cursor);
        let answer = api.post(&format!("/api/v1/admin/{path}"), &admin, body).await;
        assert!(answer.status == 422 && answer.text("message").contains("cursor"), "{path} {cursor}: {answer:?}");
    }
    assert_eq!(t.count("SELECT count(*) FROM erasures").await, 0);
    assert_eq!(t.count("SELECT count(*) FROM staff_actions").await, 0);
    t.assert_sound().await;
}
