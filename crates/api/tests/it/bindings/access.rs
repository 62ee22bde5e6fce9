//! Permissions for bindings, and repeated requests.

use reqwest::Method;
use serde_json::json;

use super::{BINDINGS, Desk, SERVERS, outcome};
use accounts::api_keys::AccountRole;
use test_support::{Answer, secs};

#[tokio::test]
async fn operators_change_support_hands_otps_in_and_staff_read() {
    let desk = Desk::open().await;
    desk.create("B-1", json!({})).await;
    let path = format!("{BINDINGS}/B-1");
    let otp = json!({ "trx_id": "B-1.1", "otp": "123456" });
    for (role, changes, hands_in, reads) in [
        (AccountRole::Producer, 403, 403, 403),
        (AccountRole::Dispatcher, 403, 403, 200),
        (AccountRole::Support, 403, 404, 200),
        (AccountRole::Operator, 200, 404, 200),
        (AccountRole::Admin, 200, 404, 200),
    ] {
        let key = desk.key(role).await;
        for verb in ["start", "pause", "resume", "stop"] {
            let answer = desk.api.post(&format!("{path}/{verb}"), &key, json!({})).await;
            assert_eq!(answer.status, changes, "{role:?}: {verb}");
        }
        assert_eq!(desk.api.post(&format!("{path}/otp"), &key, otp.clone()).await.status, hands_in, "{role:?}");
        for (method, path) in [(Method::PATCH, path.as_str()), (Method::PATCH, format!("{SERVERS}/S1").as_str())] {
            assert_eq!(
                desk.api.send(method, path, &key, "", r#"{ "reason": "a test" }"#).await.status,
                changes,
                "{role:?}: {path}"
            );
        }
        for path in [BINDINGS, &path, &format!("{path}/transactions"), SERVERS, "/api/v1/provider-call-limit"] {
            assert_eq!(desk.api.get(path, &key).await.status, reads, "{role:?}: {path}");
        }
    }
    let driver = desk.driver_key("D1").await;
    assert_eq!(desk.api.get(BINDINGS, &driver).await.error(), (403, "FORBIDDEN"));
    assert_eq!(desk.api.post(&format!("{path}/otp"), &driver, otp).await.error(), (403, "FORBIDDEN"));
    assert_eq!(desk.api.get(BINDINGS, "").await.error(), (401, "UNAUTHENTICATED"));
}

#[tokio::test]
async fn repeated_request_returns_the_first_answer() {
    let desk = Desk::open().await;
    let once = async |path: &str, key: &str, body: serde_json::Value| -> Answer {
        desk.api.post_once(path, &desk.operator, key, body).await
    };
    let new = json!({ "id": "B-1", "server_id": "S1", "account_id": "A-1" });
    let made = once(BINDINGS, "k1", new.clone()).await;
    assert_eq!((made.status, made.replayed), (201, false));
    assert_eq!(once(BINDINGS, "k1", new.clone()).await, Answer { replayed: true, ..made });
    assert_eq!(once(BINDINGS, "k2", new.clone()).await.error(), (409, "BINDING_EXISTS"));

    let start = format!("{BINDINGS}/B-1/start");
    let started = once(&start, "k3", json!({})).await;
    assert_eq!(outcome(&started), ("RUNNING", true, ""));
    desk.verb("B-1", "stop").await;
    assert_eq!(once(&start, "k3", json!({})).await, Answer { replayed: true, ..started });
    assert_eq!(desk.standing("B-1").await.0, "STOPPED");
    let stop = once(&format!("{BINDINGS}/B-1/stop"), "k3", json!({})).await;
    assert_eq!(stop.error(), (422, "IDEMPOTENCY_KEY_REUSED"));

    // The process that created the binding died before it answered.
    desk.sql("UPDATE idempotency_keys SET status = NULL, body = NULL").await;
    assert_eq!(once(BINDINGS, "k1", new.clone()).await.error(), (409, "IDEMPOTENCY_KEY_IN_USE"));
    desk.advance(secs(61)).await;
    assert_eq!(once(BINDINGS, "k1", new).await.status, 201);
    assert_eq!(desk.count("SELECT count(*) FROM bindings").await, 1);
}
