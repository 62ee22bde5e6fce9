//! Create, start, pause, resume, stop, change and delete bindings.

use serde_json::{Value, json};

use super::{BINDINGS, Desk, outcome};
use test_support::{eventually, secs};

#[tokio::test]
async fn a_binding_is_created_started_paused_resumed_stopped_and_deleted() {
    let desk = Desk::open().await;
    let made = desk.create("B-1", json!({ "max_failures": 5 })).await;
    assert_eq!((made.status, made.text("state"), made.text("phase")), (201, "STOPPED", "IDLE"));
    assert_eq!(made.body["config"]["max_failures"], 5);
    assert_eq!(desk.create("B-1", json!({})).await.error(), (409, "BINDING_EXISTS"));

    assert_eq!(desk.verb("B-1", "pause").await.error(), (409, "BINDING_NOT_RUNNING"));
    assert_eq!(desk.verb("B-1", "resume").await.error(), (409, "BINDING_NOT_RUNNING"));
    assert_eq!(outcome(&desk.verb("B-1", "stop").await), ("STOPPED", false, "STOPPED already"));
    assert_eq!(outcome(&desk.verb("B-1", "start").await), ("RUNNING", true, ""));
    assert_eq!(outcome(&desk.verb("B-1", "start").await), ("RUNNING", false, "RUNNING already"));
    assert_eq!(desk.delete("B-1").await.error(), (409, "BINDING_NOT_AT_REST"));
    assert_eq!(outcome(&desk.verb("B-1", "pause").await), ("PAUSED", true, ""));
    assert_eq!(outcome(&desk.verb("B-1", "pause").await), ("PAUSED", false, "PAUSED already"));
    assert_eq!(desk.verb("B-1", "start").await.error(), (409, "BINDING_PAUSED"));
    assert_eq!(outcome(&desk.verb("B-1", "resume").await), ("RUNNING", true, ""));

    desk.run_due().await;
    let stop = format!("{BINDINGS}/B-1/stop");
    assert_eq!(desk.post(&stop, json!({ "reason": "too_many_failures" })).await.error(), (422, "INVALID"));
    assert_eq!(outcome(&desk.post(&stop, json!({ "reason": "manual_stop" })).await), ("STOPPED", true, ""));
    let shown = desk.get(&format!("{BINDINGS}/B-1")).await;
    assert_eq!((shown.text("reason"), &shown.body["cycle"]), ("manual_stop", &json!(1)));

    assert_eq!(outcome(&desk.delete("B-1").await), ("STOPPED", true, ""));
    assert_eq!(outcome(&desk.delete("B-1").await), ("STOPPED", false, "deleted already"));
    assert_eq!(desk.get(&format!("{BINDINGS}/B-1")).await.error(), (410, "BINDING_DELETED"));
    assert_eq!(desk.verb("B-1", "start").await.error(), (410, "BINDING_DELETED"));
    let kept = desk.get(&format!("{BINDINGS}/B-1/transactions")).await;
    assert_eq!(kept.body["transactions"][0]["status"], "SUKSES");
    assert_eq!(desk.create("B-1", json!({})).await.error(), (409, "BINDING_EXISTS"));
}

#[tokio::test]
async fn a_stop_waits_for_the_open_call() {
    let mut desk = Desk::with(|knobs| knobs.hang_rate = "1".parse().unwrap()).await;
    desk.run_binding("B-1", json!({ "call_timeout_ms": 60_000 })).await;
    let hung = desk.take().await.remove(0);
    let sim = desk.sim.take();
    let watch = async {
        eventually("the call is open", || async { desk.standing("B-1").await.1 == "CALLING" }).await;
        let stop = desk.verb("B-1", "stop").await;
        assert_eq!(outcome(&stop), ("STOPPING", true, "the open call ends first"));
        assert_eq!(outcome(&desk.verb("B-1", "stop").await), ("STOPPING", false, "STOPPING already"));
        for verb in ["start", "pause", "resume"] {
            assert_eq!(desk.verb("B-1", verb).await.error(), (409, "BINDING_STOPPING"), "{verb}");
        }
        assert_eq!(desk.delete("B-1").await.error(), (409, "BINDING_NOT_AT_REST"));
        // The provider stops: its connections break, so the call ends.
        drop(sim);
    };
    let (_outcome, ()) = tokio::join!(desk.perform(&hung), watch);
    assert_eq!(desk.standing("B-1").await.0, "STOPPED");
}

#[tokio::test]
async fn settings_are_changed_one_by_one_and_checked() {
    let desk = Desk::open().await;
    let path = format!("{BINDINGS}/B-1");
    desk.create("B-1", json!({ "max_failures": 5 })).await;
    let changed = desk.patch(&path, json!({ "config": { "interval_ms": [0, 5] } })).await;
    assert_eq!(outcome(&changed), ("STOPPED", true, ""));
    let config = &changed.body["binding"]["config"];
    assert_eq!((&config["interval_ms"], &config["max_failures"]), (&json!([0, 5]), &json!(5)));
    let again = desk.patch(&path, json!({ "config": { "interval_ms": [0, 5] } })).await;
    assert_eq!(outcome(&again), ("STOPPED", false, "nothing to change"));
    for (what, body) in [
        ("out of bounds", json!({ "config": { "max_failures": 0 } })),
        ("reversed", json!({ "config": { "interval_ms": [5, 0] } })),
        ("no way to count", json!({ "config": { "interval_from": "start" } })),
        ("an unknown setting", json!({ "config": { "max_failurs": 1 } })),
        ("another type", json!({ "config": { "max_failures": "many" } })),
        ("null", json!({ "config": { "max_failures": null } })),
        ("an unknown field", json!({ "account_id": "A-2" })),
        ("no id", json!({ "server_id": "a b" })),
    ] {
        assert_eq!(desk.patch(&path, body).await.error(), (422, "INVALID"), "{what}");
    }
    assert_eq!(desk.get(&path).await.body["config"], *config);
    assert_eq!(config["interval_from"], "end");
    let paced = desk.patch(&path, json!({ "config": { "interval_from": "begin" } })).await;
    assert_eq!(paced.body["binding"]["config"]["interval_from"], "begin");
    assert_eq!(desk.get(&path).await.body["config"]["interval_from"], "begin");

    assert_eq!(desk.patch(&path, json!({ "server_id": "S2" })).await.error(), (400, "SERVER_NOT_FOUND"));
    desk.create_server("S2").await;
    let moved = desk.patch(&path, json!({ "server_id": "S2" })).await;
    assert_eq!(moved.body["binding"]["server_id"], "S2");
    desk.verb("B-1", "start").await;
    assert_eq!(desk.patch(&path, json!({ "server_id": "S1" })).await.error(), (409, "BINDING_NOT_AT_REST"));
}

#[tokio::test]
async fn a_bad_binding_is_not_created() {
    let desk = Desk::open().await;
    let good = json!({ "id": "B-1", "server_id": "S1", "account_id": "A-1", "config": {} });
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        body
    };
    let without = |field: &str| {
        let mut body = good.clone();
        body.as_object_mut().unwrap().remove(field);
        body
    };
    for (what, body) in [
        ("no id", without("id")),
        ("no server", without("server_id")),
        ("no account", without("account_id")),
        ("a blank in the id", with("id", json!("B 1"))),
        ("an empty id", with("id", json!(""))),
        ("a long id", with("id", json!("B".repeat(65)))),
        ("an id that is a number", with("id", json!(7))),
        ("the id of a path", with("id", json!("actions"))),
        ("a dash for an id", with("id", json!("-"))),
        ("a blank in the account", with("account_id", json!("A 1"))),
        ("a long account", with("account_id", json!("A".repeat(65)))),
        ("an unknown field", with("state", json!("RUNNING"))),
        ("settings that are a list", with("config", json!([1]))),
        ("an unknown setting", with("config", json!({ "max_failurs": 1 }))),
        ("a setting out of bounds", with("config", json!({ "call_timeout_ms": 99 }))),
        ("an interval of one number", with("config", json!({ "interval_ms": 500 }))),
        ("an interval below 0", with("config", json!({ "interval_ms": [-1, 5] }))),
    ] {
        assert_eq!(desk.post(BINDINGS, body).await.error(), (422, "INVALID"), "{what}");
    }
    assert_eq!(desk.count("SELECT count(*) FROM bindings").await, 0);
    assert_eq!(desk.post(BINDINGS, good.clone()).await.status, 201);
}

#[tokio::test]
async fn a_binding_with_an_unresolved_transaction_is_not_deleted() {
    let desk = Desk::with(|knobs| {
        knobs.processing_rate = "1".parse().unwrap();
        knobs.processing_duration = "1h".parse().unwrap();
    })
    .await;
    let config = json!({ "processing_timeout_ms": 1_000, "on_processing_timeout": "stop" });
    desk.run_binding("B-1", config).await;
    desk.run_for(secs(5)).await;
    let shown = desk.get(&format!("{BINDINGS}/B-1")).await;
    assert_eq!((shown.text("reason"), &shown.body["unresolved"]), ("processing_timeout", &json!(1)));
    assert_eq!(desk.delete("B-1").await.error(), (409, "BINDING_UNRESOLVED"));
}

#[tokio::test]
async fn what_names_nothing_is_not_found() {
    let desk = Desk::open().await;
    for verb in ["start", "pause", "resume", "stop"] {
        assert_eq!(desk.verb("B-9", verb).await.error(), (404, "BINDING_NOT_FOUND"), "{verb}");
    }
    assert_eq!(desk.get(&format!("{BINDINGS}/B-9")).await.error(), (404, "BINDING_NOT_FOUND"));
    assert_eq!(desk.get(&format!("{BINDINGS}/B-9/transactions")).await.error(), (404, "BINDING_NOT_FOUND"));
    assert_eq!(desk.patch(&format!("{BINDINGS}/B-9"), json!({})).await.error(), (404, "BINDING_NOT_FOUND"));
    assert_eq!(desk.delete("B-9").await.error(), (404, "BINDING_NOT_FOUND"));
    assert_eq!(desk.get("/api/v1/transactions/B-9.1").await.error(), (404, "TRANSACTION_NOT_FOUND"));
    assert_eq!(desk.get("/api/v1/transactions/B-9").await.error(), (422, "INVALID"));
    let body = json!({ "id": "B-9", "server_id": "S9", "account_id": "A-1" });
    assert_eq!(desk.post(BINDINGS, body).await.error(), (400, "SERVER_NOT_FOUND"));
    let with_body = desk.post(&format!("{BINDINGS}/B-9/start"), json!({ "config": {} })).await;
    assert_eq!(with_body.error(), (422, "INVALID"));
}
