//! The proof of the history over HTTP.

use accounts::api_keys::AccountRole;
use maintenance::proof::slice;
use test_support::{Api, TestApp};

#[tokio::test]
async fn proof_shows_its_place_and_each_violation() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    t.sql("DELETE FROM order_events WHERE order_id = 'ORD-1'").await;
    slice::run(&t.app.maintenance).await.unwrap();
    let api = Api::start(&t.app).await;
    let operator = t.key(AccountRole::Operator).await;
    let proof = api.get("/api/v1/admin/proof", &operator).await;
    assert_eq!(proof.status, 200, "{proof:?}");
    assert_eq!(proof.body["lag_events"], 0);
    assert_eq!(proof.body["open_violations"], 1);
    assert_eq!(proof.body["is_running"], false);
    let violation = &proof.body["violations"][0];
    assert_eq!(violation["invariant"], "unbroken_chain");
    assert_eq!(violation["order_id"], "ORD-1");
    let one = api.get(&format!("/api/v1/admin/proof/violations/{}", violation["id"]), &operator).await;
    assert_eq!(&one.body, violation);
}

#[tokio::test]
async fn unknown_violation_is_not_found() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let operator = t.key(AccountRole::Operator).await;
    for id in ["1", "x", "9223372036854775808"] {
        let answer = api.get(&format!("/api/v1/admin/proof/violations/{id}"), &operator).await;
        assert_eq!(answer.error(), (404, "VIOLATION_NOT_FOUND"), "{id}");
    }
}
