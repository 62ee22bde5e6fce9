//! Staff actions on the page and over HTTP, and signed-in persons.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Browser, lay_out, place};
use accounts::api_keys::AccountRole;
use foundation::staff_actions::ActionAuthor;
use model::ids::DriverId;
use orders::fleet::driver_admin;
use test_support::{Api, TestApp, by, lasting_transaction, secs};

const AUDIT: &str = "/api/v1/admin/audit";

/// Formats an entry as `source actor action subject reason address request`. A dash replaces a missing field.
fn told(entry: &Value) -> String {
    let members = ["source", "actor", "action", "subject", "reason", "address", "request"];
    members.map(|member| entry[member].as_str().unwrap_or("-")).join(" ")
}

fn entries(body: &Value) -> Vec<String> {
    body["entries"].as_array().unwrap_or_else(|| panic!("{body}")).iter().map(told).collect()
}

#[tokio::test]
async fn the_audit_says_who_did_what_from_where_and_why() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    lay_out(&t).await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    dispatcher.post("/console/orders/ORD-1/hold", &[("reason", "they call back")]).await;
    t.advance(secs(1)).await;
    let support = Browser::signed_in(&t, &api, AccountRole::Support).await;
    let alert = t.count("SELECT id FROM alerts WHERE order_id = 'OWED' AND acked_at IS NULL").await;
    support.post(&format!("/console/alerts/{alert}/ack"), &[("note", "I have it")]).await;
    t.advance(secs(1)).await;
    let operator = t.key(AccountRole::Operator).await;
    let storm = json!({ "reason": "a storm" });
    assert_eq!(api.post("/api/v1/admin/queues/notify-queue/pause", &operator, storm).await.status, 200);
    t.advance(secs(1)).await;
    let shell = by("cli:root");
    let author = ActionAuthor { actor: &shell, reason: Some("left") };
    driver_admin::set_disabled(&t.app.core.db, &DriverId::from("D1"), true, author).await.unwrap();

    let kind = &t.texts("SELECT kind FROM alerts WHERE order_id = 'OWED'").await[0];
    let all = [
        "system cli:root DRIVER_DISABLED D1 left - -".to_owned(),
        "system operator:test-operator QUEUE_PAUSED notify-queue a storm 127.0.0.1 POST /api/v1/admin/queues/{queue}/pause"
            .to_owned(),
        format!("alert support:test-support ACKNOWLEDGED_{kind} OWED I have it 127.0.0.1 POST /console/alerts/{{id}}/ack"),
        "order dispatcher:test-dispatcher HELD_FOR_REVIEW ORD-1 they call back 127.0.0.1 POST /console/orders/{id}/{action}"
            .to_owned(),
    ];
    let listed = api.get(AUDIT, &operator).await;
    assert_eq!((entries(&listed.body), &listed.body["next_cursor"]), (all.to_vec(), &Value::Null));

    // Reads page by page.
    let mut paged = Vec::new();
    let mut path = format!("{AUDIT}?limit=1");
    for _ in 0..all.len() {
        let page = api.get(&path, &operator).await;
        paged.extend(entries(&page.body));
        path = format!("{AUDIT}?limit=1&cursor={}", page.text("next_cursor"));
    }
    assert_eq!((paged, entries(&api.get(&path, &operator).await.body)), (all.to_vec(), Vec::new()));
    for (query, index) in [
        ("source=alert", 2),
        ("who=root", 0),
        ("who=dispatcher:test-dispatcher", 3),
        ("subject=notify-queue", 1),
        ("who=test-support&subject=OWED", 2),
    ] {
        let found = entries(&api.get(&format!("{AUDIT}?{query}"), &operator).await.body);
        assert_eq!(found, [all[index].clone()], "{query}");
    }
    assert!(entries(&api.get(&format!("{AUDIT}?to=2020-01-01T00:00:00Z"), &operator).await.body).is_empty());
    for query in ["from=2000-01-01T00:00:00Z", "cursor=nonsense", "source=weather", "limit=0"] {
        assert!([400, 422].contains(&api.get(&format!("{AUDIT}?{query}"), &operator).await.status), "{query}");
    }

    let page = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    let shown = page.text("/console/audit").await;
    for text in ["they call back", "I have it", "a storm", "127.0.0.1", "Not over HTTP", "/console/orders/ORD-1"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let found = page.text("/console/audit?who=test-support").await;
    // The banner above each page names the stopped queue and its reason.
    let found = found.rsplit("<h1>").next().unwrap();
    assert!(found.contains("I have it") && !found.contains("a storm"), "{found}");
    assert_eq!(page.get("/console/audit?from=2000-01-01T00:00").await.status(), 422);
    assert_eq!(page.get("/console/audit?cursor=nonsense").await.status(), 422);
}

#[tokio::test]
async fn an_otp_and_what_workers_do_are_not_told() {
    let t = TestApp::start().await;
    t.sql(
        "INSERT INTO binding_events (binding_id, at, kind, actor, detail)
         VALUES ('B', dispatchq_now(), 'otp_submitted', 'support:anna', 'digest'),
                ('B', dispatchq_now(), 'stopped', 'system', 'no money')",
    )
    .await;
    let api = Api::start(&t.app).await;
    let listed = api.get(AUDIT, &t.key(AccountRole::Operator).await).await;
    assert_eq!(entries(&listed.body), ["binding support:anna OTP_SUBMITTED B - - -"]);
}

#[tokio::test]
async fn an_admin_lists_and_ends_sessions() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    let admin = t.key(AccountRole::Admin).await;
    let sessions = api.get("/api/v1/admin/sessions", &admin).await.body;
    let session = &sessions["sessions"][0];
    assert_eq!((&session["name"], &session["address"]), (&json!("test-viewer"), &json!("127.0.0.1")), "{sessions}");
    let path = format!("/api/v1/admin/sessions/{}", session["id"].as_str().unwrap());
    let end = async |path: String| api.send(Method::DELETE, &path, &admin, "", "").await;
    assert!([400, 422].contains(&end(path.clone()).await.status), "a reason is asked for");
    viewer.text("/console").await;
    assert_eq!(end(format!("{path}?reason=lost")).await.status, 200);
    let refused = viewer.get("/console").await;
    assert_eq!((refused.status().as_u16(), place(&refused)), (303, "/console/login?next=%2Fconsole"));
    assert_eq!(end(format!("{path}?reason=lost")).await.error(), (404, "SESSION_NOT_FOUND"));
    assert_eq!(api.get("/api/v1/admin/sessions", &admin).await.body, json!({ "sessions": [] }));
    let recorded = t.texts("SELECT concat_ws(' ', action, actor, reason) FROM audit_staff_actions").await;
    assert_eq!(recorded, ["SESSION_ENDED admin:test-admin lost"]);
}

#[tokio::test]
async fn audit_query_is_bounded_and_uses_own_connections() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    lay_out(&t).await;
    let (operator, dispatcher) = (t.key(AccountRole::Operator).await, t.key(AccountRole::Dispatcher).await);
    let mut lock = lasting_transaction(&t.postgres).await;
    sqlx::query("LOCK TABLE erasures IN ACCESS EXCLUSIVE MODE").execute(&mut *lock).await.unwrap();
    // The number of concurrent page reads, and one more, which waits for one of their connections.
    let asked = async || api.get(&format!("{AUDIT}?from=2029-11-01T00:00:00Z"), &operator).await;
    let held = async || api.post("/api/v1/orders/ORD-1/hold", &dispatcher, json!({ "reason": "a test" })).await;
    let (a, b, c, d, e, held) = tokio::join!(asked(), asked(), asked(), asked(), asked(), held());
    for slow in [a, b, c, d, e] {
        assert_eq!(slow.error(), (422, "INVALID"), "{slow:?}");
        assert!(slow.text("message").contains("within 2 s"), "{slow:?}");
    }
    assert_eq!(held.status, 200, "an order waits for none of them: {held:?}");
    lock.rollback().await.unwrap();
    assert_eq!(api.get(AUDIT, &operator).await.status, 200);
}
