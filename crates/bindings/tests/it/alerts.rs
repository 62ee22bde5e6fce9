//! An UNRESOLVED transaction raises an alert until its provider reports the result or a person handles it.

use model::{
    binding::{BindingChange, BindingPhase, DecisionMoment, TransactionStatus, decide_deadline},
    messages::{NO_ORDER, TRANSACTION_UNRESOLVED},
};
use serde_json::json;

use accounts::api_keys::AccountRole;
use bindings::store::write::{BindingWrite, WriteVerdict};
use maintenance::recovery::reconciler;
use test_support::{Api, Counting, ProviderStage, binding_id, secs};

/// Returns kind, subject, open state and note of every alert.
async fn alerts(stage: &ProviderStage) -> Vec<String> {
    let rows =
        "SELECT concat_ws(' ', kind, binding_id, dedupe_key, CASE WHEN acked_at IS NULL THEN 'open' END, ack_note)
                FROM alerts ORDER BY id";
    stage.t.texts(rows).await
}

/// Makes the provider lose its answers at this rate.
fn lose_answers(stage: &ProviderStage, rate: &str) {
    stage.turn_knobs(|knobs| knobs.lost_answer_rate = rate.parse().unwrap());
}

/// Creates a binding that has stopped and whose transaction B.1 is UNRESOLVED.
async fn with_unresolved() -> ProviderStage {
    let stage = ProviderStage::start().await;
    lose_answers(&stage, "1");
    stage.run_binding("B", "S1", json!({ "processing_timeout_ms": 1000, "on_processing_timeout": "stop" })).await;
    stage.t.run_for(secs(60)).await;
    assert_eq!(stage.headers("B").await[0].status, TransactionStatus::Unresolved);
    stage
}

/// Creates a binding with an overdue transaction. Returns the change that leaves it UNRESOLVED.
async fn overdue_change(stage: &ProviderStage, id: &str) -> BindingChange {
    stage.run_binding(id, "S1", json!({ "processing_timeout_ms": 1000 })).await;
    stage.t.run_due().await;
    stage.t.advance(secs(2)).await;
    let loaded = stage.t.app.bindings.rows.load_binding(&binding_id(id)).await.unwrap().unwrap();
    assert_eq!(loaded.binding.phase, BindingPhase::Processing);
    decide_deadline(&loaded.binding, DecisionMoment { now: loaded.now, luck: 0.5 }).expect("it is overdue")
}

fn write_of(change: &BindingChange) -> BindingWrite {
    BindingWrite { change: change.clone(), owner: "w1:1".into(), call: None }
}

fn never_end(stage: &ProviderStage) {
    stage.turn_knobs(|knobs| {
        knobs.processing_rate = "1".parse().unwrap();
        knobs.processing_duration = "10h".parse().unwrap();
    });
}

#[tokio::test]
async fn unresolved_transaction_is_one_alert_until_resolved() {
    let counting = Counting::start();
    let stage = with_unresolved().await;
    assert_eq!(alerts(&stage).await, ["TRANSACTION_UNRESOLVED B B.1 open"]);
    // Repeated polls and a full reconciliation raise no second alert.
    reconciler::reconcile_in_full(&stage.t.app.maintenance).await.unwrap();
    stage.t.run_for(secs(300)).await;
    assert!(stage.calls("B").await.iter().filter(|call| call.starts_with("settle")).count() > 1);
    assert_eq!(alerts(&stage).await, ["TRANSACTION_UNRESOLVED B B.1 open"]);
    let told_again = "SELECT count(*) FROM alerts WHERE next_escalation_at IS NOT NULL";
    assert_eq!(stage.t.count(told_again).await, 0, "the provider is asked on by itself");

    lose_answers(&stage, "0");
    stage.t.run_for(secs(7200)).await;
    assert_eq!(stage.headers("B").await[0].status, TransactionStatus::Sukses);
    assert_eq!(alerts(&stage).await, ["TRANSACTION_UNRESOLVED B B.1 its provider reports SUKSES"]);
    assert_eq!(stage.t.count("SELECT count(*) FROM outbox").await, 1, "and it was told once");

    let kind = "{alert=\"TRANSACTION_UNRESOLVED\"}";
    let raised = format!("dispatchq_manual_interventions_total{kind} 1");
    assert_eq!(counting.of("dispatchq_manual_interventions_total"), [raised]);
    let response = |part: &str| counting.read().value(&format!("dispatchq_alert_response_seconds_{part}{kind}"));
    assert_eq!((response("count"), response("sum") >= 300.0), (1.0, true), "the end of the transaction is the answer");
}

#[tokio::test]
async fn transaction_end_keeps_the_acknowledgement() {
    let stage = with_unresolved().await;
    let api = Api::start(&stage.t.app).await;
    let support = stage.t.key(AccountRole::Support).await;
    let found = api.get("/api/v1/alerts?binding_id=B&open=true", &support).await;
    let alert = found.body["alerts"][0].clone();
    assert_eq!((&alert["kind"], &alert["binding_id"]), (&json!(TRANSACTION_UNRESOLVED), &json!("B")));
    assert_eq!((alert.get("order_id"), &alert["payload"]["trx_id"]), (None, &json!("B.1")));
    for none in ["binding_id=C", "binding_id=B&kind=TIMER_DEAD", &format!("order_id={NO_ORDER}")] {
        let found = api.get(&format!("/api/v1/alerts?{none}"), &support).await;
        assert_eq!(found.body["alerts"], json!([]), "{none}");
    }
    assert_eq!(api.get("/api/v1/alerts?binding_id=a:b", &support).await.error(), (422, "INVALID"));

    let path = format!("/api/v1/alerts/{}/ack", alert["id"]);
    let note = json!({ "note": "the provider's desk looks into it" });
    for (role, status) in [(AccountRole::Dispatcher, 403), (AccountRole::Operator, 403), (AccountRole::Support, 200)] {
        let key = stage.t.key(role).await;
        assert_eq!(api.post(&path, &key, note.clone()).await.status, status, "{role:?}");
    }
    let acknowledged = ["TRANSACTION_UNRESOLVED B B.1 the provider's desk looks into it"];
    assert_eq!(alerts(&stage).await, acknowledged);
    lose_answers(&stage, "0");
    stage.t.run_for(secs(7200)).await;
    assert_eq!(stage.headers("B").await[0].status, TransactionStatus::Sukses);
    assert_eq!(alerts(&stage).await, acknowledged);
}

#[tokio::test]
async fn a_change_that_is_written_twice_raises_one_alert() {
    let stage = ProviderStage::start().await;
    never_end(&stage);
    let change = overdue_change(&stage, "B").await;
    let bindings = &stage.t.app.bindings.rows;
    assert!(matches!(bindings.write_binding(write_of(&change)).await, Ok(WriteVerdict::Written { .. })));
    assert_eq!(bindings.write_binding(write_of(&change)).await.unwrap(), WriteVerdict::Conflict);
    assert_eq!(alerts(&stage).await, ["TRANSACTION_UNRESOLVED B B.1 open"]);
    assert_eq!(stage.t.count("SELECT count(*) FROM outbox").await, 1);
}

#[tokio::test]
async fn without_its_alert_the_transaction_is_not_left() {
    let stage = ProviderStage::start().await;
    never_end(&stage);
    let change = overdue_change(&stage, "B").await;
    stage.t.sql("ALTER TABLE alerts ADD CONSTRAINT refused CHECK (binding_id IS NULL)").await;
    let bindings = &stage.t.app.bindings.rows;
    let refused = bindings.write_binding(write_of(&change)).await.unwrap_err();
    assert!(refused.to_string().contains("refused"), "{refused}");
    let row = stage.binding("B").await;
    assert_eq!((row.phase, row.unresolved, row.version), (BindingPhase::Processing, 0, change.version));
    assert_eq!(stage.t.count("SELECT count(*) FROM outbox").await, 0);

    stage.t.sql("ALTER TABLE alerts DROP CONSTRAINT refused").await;
    assert!(matches!(bindings.write_binding(write_of(&change)).await, Ok(WriteVerdict::Written { .. })));
    assert_eq!(alerts(&stage).await, ["TRANSACTION_UNRESOLVED B B.1 open"]);
}
