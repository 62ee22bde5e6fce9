//! Provider servers, and the limit of all calls.

use reqwest::Method;
use serde_json::{Value, json};

use super::{BINDINGS, Desk, SERVERS};
use test_support::Answer;

/// Adds the required reason for changes of servers and limits.
fn because(mut body: Value) -> Value {
    body["reason"] = json!("a test");
    body
}

const LIMIT: &str = "/api/v1/provider-call-limit";

#[tokio::test]
async fn servers_are_created_changed_and_listed() {
    let desk = Desk::open().await;
    let server = format!("{SERVERS}/S1");
    let shown = desk.get(&server).await;
    assert_eq!((shown.text("provider"), &shown.body["max_concurrent"]), ("acme", &json!(2)));
    assert_eq!(shown.text("changed_by"), "operator:test-operator");
    assert_eq!(desk.create_server("S1").await.error(), (409, "SERVER_EXISTS"));
    let changed = desk.patch(&server, because(json!({ "max_concurrent": 4, "repeats_are_safe": false }))).await;
    assert_eq!((changed.status, &changed.body["max_concurrent"]), (200, &json!(4)));
    assert_eq!(changed.body["base_url"], shown.body["base_url"]);

    for (what, body) in [
        ("an unknown provider", json!({ "provider": "nowhere" })),
        ("no web address", json!({ "base_url": "ftp://x" })),
        ("too few calls", json!({ "max_concurrent": 0 })),
        ("too many calls", json!({ "max_concurrent": 1001 })),
        ("an unknown field", json!({ "max_calls": 1 })),
    ] {
        assert_eq!(desk.patch(&server, because(body)).await.error(), (422, "INVALID"), "{what}");
    }
    let unknown = desk.patch(&server, because(json!({ "provider": "nowhere" }))).await;
    assert!(unknown.text("message").contains("acme"), "names what is known: {unknown:?}");
    assert_eq!(desk.patch(&format!("{SERVERS}/S9"), because(json!({}))).await.error(), (404, "SERVER_NOT_FOUND"));
    assert_eq!(desk.get(&format!("{SERVERS}/S9")).await.error(), (404, "SERVER_NOT_FOUND"));

    desk.create_server("S2").await;
    let page = desk.get(&format!("{SERVERS}?limit=1")).await;
    assert_eq!((&page.body["servers"][0]["id"], &page.body["next_cursor"]), (&json!("S1"), &json!("S1")));
    let rest = desk.get(&format!("{SERVERS}?cursor=S1")).await;
    assert_eq!((&rest.body["servers"][0]["id"], &rest.body["next_cursor"]), (&json!("S2"), &Value::Null));
}

#[tokio::test]
async fn a_bad_server_is_not_created() {
    let desk = Desk::open().await;
    let servers = desk.count("SELECT count(*) FROM provider_servers").await;
    let with = |field: &str, value: Value| {
        let mut body =
            json!({ "id": "S9", "provider": "acme", "base_url": "http://127.0.0.1:1/S9", "reason": "a test" });
        body[field] = value;
        body
    };
    for (what, body) in [
        ("a blank in the id", with("id", json!("S 9"))),
        ("a dash for an id", with("id", json!("-"))),
        ("a dot for an id", with("id", json!("."))),
        ("two dots for an id", with("id", json!(".."))),
        ("no provider", with("provider", Value::Null)),
        ("an unknown provider", with("provider", json!("nowhere"))),
        ("no address", with("base_url", Value::Null)),
        ("a login", with("base_url", json!("http://me:secret@127.0.0.1:1/"))),
        ("a query", with("base_url", json!("http://127.0.0.1:1/?a=b"))),
        ("a fragment", with("base_url", json!("http://127.0.0.1:1/#a"))),
        ("a long address", with("base_url", json!(format!("http://127.0.0.1:1/{}", "a".repeat(500))))),
        ("too many calls", with("max_concurrent", json!(1001))),
        ("a host that is not listed", with("base_url", json!("http://127.0.0.2:1/S9"))),
        ("a host of the cloud", with("base_url", json!("http://169.254.169.254/latest"))),
    ] {
        assert_eq!(desk.post(SERVERS, body).await.error(), (422, "INVALID"), "{what}");
    }
    assert_eq!(desk.count("SELECT count(*) FROM provider_servers").await, servers);
}

#[tokio::test]
async fn nothing_starts_on_a_server_that_is_disabled() {
    let desk = Desk::open().await;
    desk.create("B-1", json!({})).await;
    desk.run_binding("B-2", json!({})).await;
    assert_eq!(desk.patch(&format!("{SERVERS}/S1"), because(json!({ "enabled": false }))).await.status, 200);
    assert_eq!(desk.verb("B-1", "start").await.error(), (409, "SERVER_DISABLED"));
    desk.run_due().await;
    let stopped = desk.get(&format!("{BINDINGS}/B-2")).await;
    assert_eq!((stopped.text("state"), stopped.text("reason")), ("STOPPED", "server_disabled"));
    desk.patch(&format!("{SERVERS}/S1"), because(json!({ "enabled": true }))).await;
    assert_eq!(desk.verb("B-1", "start").await.status, 200);
}

#[tokio::test]
async fn the_limit_of_all_calls_is_set_and_given_back() {
    let desk = Desk::open().await;
    let set = async |body: Value| -> Answer {
        desk.api.send(Method::PUT, LIMIT, &desk.operator, "", because(body).to_string()).await
    };
    let as_configured = json!({ "max_concurrent_calls": 50, "set_by_operator": false });
    assert_eq!(desk.get(LIMIT).await.body, as_configured);
    let wider = json!({ "max_concurrent_calls": 60, "set_by_operator": true });
    assert_eq!(set(json!({ "max_concurrent_calls": 60 })).await.body, wider);
    assert_eq!(desk.get(LIMIT).await.body, wider);
    assert_eq!(desk.app.core.store.slot_stats(&["S1"]).await.unwrap().limit, 60);
    for bad in [json!({}), json!({ "max_concurrent_calls": 0 }), json!({ "max_concurrent_calls": "60" })] {
        assert_eq!(set(bad).await.error(), (422, "INVALID"));
    }
    assert_eq!(set(json!({ "max_concurrent_calls": null })).await.body, as_configured);
    assert_eq!(desk.app.core.store.slot_stats(&["S1"]).await.unwrap().limit, 50);
}

// Rule F33: An operator may name only hosts that the configuration lists; a refusal names them.
#[tokio::test]
async fn operator_names_listed_hosts_only() {
    let desk = Desk::open().await;
    let server = format!("{SERVERS}/S1");
    let before = desk.get(&server).await.body;
    for url in ["http://169.254.169.254/latest", "https://evil.example/x", "http://localhost:18291/x"] {
        let refused = desk.patch(&server, because(json!({ "base_url": url }))).await;
        assert_eq!(refused.error(), (422, "INVALID"), "{url}");
        let message = refused.text("message");
        assert!(message.contains("[providers.acme] hosts does not list") && message.contains("127.0.0.1"), "{message}");
    }
    assert_eq!(desk.get(&server).await.body, before);
}
