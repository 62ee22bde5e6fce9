//! Bindings on pages: the reason why one waits, its OTP, and the actor who stopped it.

use model::binding::BindingState;
use serde_json::json;

use super::{Browser, place, statements_of};
use accounts::api_keys::AccountRole;
use test_support::{Api, ProviderStage, secs};

const CODE: &str = "739154";
const OTP: &str = "/console/bindings/B/otp";

#[tokio::test]
async fn bindings_page_names_an_unreadable_binding() {
    let stage = ProviderStage::start().await;
    for id in ["A", "B"] {
        stage.run_binding(id, "S1", json!({})).await;
    }
    stage.t.sql("UPDATE bindings SET config = config || '{\"of_tomorrow\": 1}' WHERE id = 'A'").await;
    let api = Api::start(&stage.t.app).await;
    let page = Browser::signed_in(&stage.t, &api, AccountRole::Viewer).await.text("/console/bindings").await;
    assert!(
        page.contains("Unreadable") && page.contains("of_tomorrow") && page.contains("/console/bindings/B"),
        "{page}"
    );
    stage.t.sql("UPDATE bindings SET config = config - 'of_tomorrow'").await;
}

// Rule U1: A refused form shows its page again without the OTP, at the form and at the top of the page.
#[tokio::test]
async fn support_submits_otp_and_operator_stops_binding() {
    let stage = ProviderStage::start().await;
    stage.turn_knobs(|knobs| {
        knobs.otp_rate = "1".parse().unwrap();
        knobs.otp_code = CODE.to_owned();
        knobs.otp_lifetime = secs(3600);
    });
    stage.run_binding("B", "S1", json!({ "interval_ms": [60000, 60000] })).await;
    stage.t.run_due().await;
    let api = Api::start(&stage.t.app).await;
    let support = Browser::signed_in(&stage.t, &api, AccountRole::Support).await;
    let viewer = Browser::signed_in(&stage.t, &api, AccountRole::Viewer).await;
    for path in ["/console/bindings", "/console/bindings/B", "/console/bindings?state=RUNNING&server=S1"] {
        let page = support.text(path).await;
        assert!(page.contains(OTP) && page.contains("value=\"B.1\"") && !page.contains("/B/stop"), "{path}: {page}");
        let page = viewer.text(path).await;
        assert!(page.contains("B.1") && !page.contains(OTP), "{path}: {page}");
    }
    assert!(!support.text("/console/bindings?state=PAUSED").await.contains("B.1"));
    assert_eq!(support.get("/console/bindings?state=LOST").await.status(), 422);
    assert_eq!(support.get("/console/bindings/C").await.status(), 404);

    for (form, status) in [
        ([("trx_id", "B.1"), ("otp", "")], 422),
        ([("trx_id", "nonsense"), ("otp", CODE)], 422),
        ([("trx_id", "C.1"), ("otp", CODE)], 409),
        ([("trx_id", "B.1"), ("otp", &format!("{CODE} {CODE}"))], 422),
    ] {
        let answer = support.post(OTP, &form).await;
        assert_eq!(answer.status(), status, "{form:?}");
        let page = answer.text().await.unwrap();
        assert!(page.contains("id=\"refused\"") && !page.contains(CODE), "{form:?}: {page}");
    }
    let given = [("trx_id", "B.1"), ("otp", CODE), ("back", "/bindings/B")];
    let dispatcher = Browser::signed_in(&stage.t, &api, AccountRole::Dispatcher).await;
    assert_eq!(dispatcher.post(OTP, &given).await.status(), 403);
    let stored = support.post(OTP, &given).await;
    assert_eq!(place(&stored), "/console/bindings/B?did=otp");
    let page = support.text("/console/bindings/B?did=otp").await;
    assert!(page.contains("is being sent to the provider") && !page.contains(OTP) && !page.contains(CODE), "{page}");
    assert_eq!(support.post(OTP, &given).await.status(), 409, "another was handed in before");
    stage.t.run_due().await;
    assert_eq!(stage.calls("B").await, ["start otp_wanted", "otp success"]);

    let operator = Browser::signed_in(&stage.t, &api, AccountRole::Operator).await;
    let stop = [("reason", "the account is closed"), ("back", "/bindings/B")];
    assert_eq!(support.post("/console/bindings/B/stop", &stop).await.status(), 403);
    assert_eq!(operator.post("/console/bindings/B/stop", &[("reason", "")]).await.status(), 422);
    assert_eq!(place(&operator.post("/console/bindings/B/stop", &stop).await), "/console/bindings/B?did=binding");
    assert_eq!(stage.binding("B").await.state, BindingState::Stopped);
    let page = operator.text("/console/bindings/B").await;
    assert!(page.contains("the account is closed") && page.contains("operator:test-operator"), "{page}");
    assert!(page.contains("title=\"SUKSES\"") && page.contains("/B/start"), "{page}");
    let digest = &stage.t.texts("SELECT detail FROM binding_events WHERE kind = 'otp_submitted'").await[0];
    assert!(!page.contains(digest.as_str()) && page.contains("OTP submitted"), "{page}");
    assert!(operator.text("/console/audit?subject=B").await.contains("the account is closed"));
}

#[tokio::test]
async fn the_page_of_a_binding_takes_at_most_eight_statements() {
    let stage = ProviderStage::start().await;
    stage.run_binding("B", "S1", json!({ "interval_ms": [60000, 60000] })).await;
    stage.t.run_due().await;
    let api = Api::start(&stage.t.app).await;
    let browser = Browser::signed_in(&stage.t, &api, AccountRole::Viewer).await;
    browser.text("/console/bindings/B").await;
    let statements = statements_of(&browser, "/console/bindings/B").await.1;
    assert!((1..=8).contains(&statements.len()), "{statements:#?}");
}

#[tokio::test]
async fn support_takes_care_of_an_unresolved_transaction() {
    let stage = ProviderStage::start().await;
    stage.turn_knobs(|knobs| knobs.lost_answer_rate = "1".parse().unwrap());
    stage.run_binding("B", "S1", json!({ "processing_timeout_ms": 1000, "on_processing_timeout": "stop" })).await;
    stage.t.run_for(secs(60)).await;
    let alert = stage.t.count("SELECT id FROM alerts WHERE binding_id = 'B'").await;
    let api = Api::start(&stage.t.app).await;
    let support = Browser::signed_in(&stage.t, &api, AccountRole::Support).await;
    let page = support.text("/console/alerts").await;
    assert!(page.contains("href=\"/console/bindings/B\"") && page.contains(&format!("/alerts/{alert}/ack")), "{page}");
    assert!(!page.contains("__binding__"), "{page}");
    let dispatcher = Browser::signed_in(&stage.t, &api, AccountRole::Dispatcher).await;
    let page = dispatcher.text("/console/alerts").await;
    assert!(page.contains("/console/bindings/B") && !page.contains(&format!("/alerts/{alert}/ack")), "{page}");
    let ack = format!("/console/alerts/{alert}/ack");
    assert_eq!(dispatcher.post(&ack, &[("note", "a test")]).await.status(), 403);
    assert_eq!(place(&support.post(&ack, &[("note", "their desk knows")]).await), "/console/alerts?did=ack");
    assert!(!support.text("/console/alerts").await.contains("/console/bindings/B"));
    assert!(support.text("/console/alerts?show=all").await.contains("their desk knows"));
    let operator = Browser::signed_in(&stage.t, &api, AccountRole::Operator).await;
    let trail = operator.text("/console/audit?source=alert").await;
    assert!(trail.contains("/console/bindings/B") && trail.contains("their desk knows"), "{trail}");
}
