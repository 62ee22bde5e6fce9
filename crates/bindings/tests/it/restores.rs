//! Restores the Redis state of bindings after Redis has lost all data.

use chrono::TimeDelta;
use model::binding::{BindingCommand, CallRules, ClaimDecision, TransactionStatus, decide_settle};
use serde_json::json;

use bindings::{
    explain::{JobPlace, gather},
    store::write::{BindingWrite, WriteVerdict},
};
use maintenance::recovery::{rebuild::Rebuild, reconciler};
use queue::Outcome;
use test_support::{ProviderStage, binding_id, eventually, lasting_transaction, secs};

#[tokio::test]
async fn rebuild_restores_slots_of_the_open_call() {
    let stage = ProviderStage::start().await;
    stage.create_server("S2", 2).await;
    stage.turn_knobs(|knobs| {
        knobs.processing_rate = "1".parse().unwrap();
        knobs.processing_duration = "10h".parse().unwrap();
    });
    stage.run_binding("B", "S1", json!({ "processing_timeout_ms": 60000 })).await;
    stage.t.run_due().await;
    stage.stop("B").await;
    stage.t.run_for(secs(61)).await;
    let moved = BindingCommand::Patch { server_id: Some("S2".parse().unwrap()), config: None };
    assert_eq!(stage.command("B", moved).await.unresolved, 1);
    // A worker polls the transaction at the server where it started.
    stage.t.advance(secs(3600)).await;
    let header = stage.headers("B").await.remove(0);
    assert_eq!((header.status, header.server_id.as_str()), (TransactionStatus::Unresolved, "S1"));
    let loaded = stage.t.app.bindings.rows.load_binding(&binding_id("B")).await.unwrap().unwrap();
    let rules = CallRules { margin: TimeDelta::seconds(1), repeats_are_safe: true, otp_is_readable: true };
    let ClaimDecision::Call(claim) = decide_settle(&loaded.binding, &header, rules, loaded.now) else {
        panic!("nothing to settle: {header:?}")
    };
    let write = BindingWrite { change: claim.change, owner: "w1:1".into(), call: None };
    let written = stage.t.app.bindings.rows.write_binding(write).await.unwrap();
    assert_eq!(written, WriteVerdict::Written { messages: Vec::new() });

    stage.t.redis::<()>(&["FLUSHALL"]).await;
    assert!(reconciler::reconcile_once(&stage.t.app.maintenance).await.unwrap().unwrap().rebuild);
    let holders = stage.t.app.core.store.list_slot_holders(0, 10).await.unwrap();
    let held: Vec<_> = holders.iter().map(|h| (h.id.as_str(), h.group.as_str(), h.own.as_str())).collect();
    assert_eq!(held, [("settle:B:1", "S1", "B")]);
    // The worker died: its call counts as lost after its timeout, and the provider is polled again.
    stage.t.run_for(secs(3700)).await;
    let calls = stage.calls("B").await;
    assert!(calls.contains(&"settle lost".to_owned()), "{calls:?}");
    assert_eq!(calls.last().map(String::as_str), Some("settle processing"), "{calls:?}");
    stage.assert_judge_content();
}

#[tokio::test]
async fn cycle_due_during_rebuild_waits_in_line() {
    let stage = ProviderStage::start().await;
    stage.run_binding("B", "S1", json!({ "interval_ms": [60000, 60000] })).await;
    stage.t.run_for(secs(40)).await;
    let calls = stage.calls("B").await.len();
    stage.t.redis::<()>(&["FLUSHALL"]).await;
    let mut rebuild = Rebuild::begin(&stage.t.app.maintenance).await.unwrap();
    assert!(rebuild.put_back_due_soon().await.unwrap());
    let ran = stage.t.run_for(secs(25)).await;
    assert!(ran.iter().any(|ran| matches!(ran.outcome, Outcome::Park(_))), "it ran, and found no slots: {ran:?}");
    assert_eq!(stage.calls("B").await.len(), calls, "no slot is handed out before the epoch");

    assert!(rebuild.put_back_later().await.unwrap() && rebuild.finish().await.unwrap());
    stage.t.run_due().await;
    assert!(stage.calls("B").await.len() > calls);
    stage.assert_judge_content();
}

/// Returns the jobs that precede this binding's job in the queue of its server.
async fn those_before(stage: &ProviderStage, id: &str) -> Vec<String> {
    let explained = gather::explain_binding(&stage.t.app.bindings, &binding_id(id)).await.unwrap();
    match explained.next.and_then(|next| next.place) {
        Some(JobPlace::Parked { first_before, .. }) => first_before,
        place => panic!("{id} is not in line: {place:?}"),
    }
}

#[tokio::test]
async fn redis_loss_keeps_line_order_and_open_slots() {
    let stage = ProviderStage::start().await;
    stage.turn_knobs(|knobs| knobs.hang_rate = "1".parse().unwrap());
    let once = json!({ "interval_ms": [3600000, 3600000], "call_timeout_ms": 60000 });
    for id in ["X", "Y"] {
        stage.run_binding(id, "S1", once.clone()).await;
    }
    let taken = stage.t.take().await;
    assert_eq!(taken.len(), 2);
    let lose_redis = async {
        eventually("both calls are open", || async { stage.sim.read_report().open == 2 }).await;
        // The order differs from the order of the ids.
        for id in ["C", "A", "B"] {
            stage.run_binding(id, "S1", once.clone()).await;
            stage.t.run_due().await;
            stage.t.advance(secs(1)).await;
        }
        let line = ["cycle:C:1", "cycle:A:1"];
        assert_eq!(those_before(&stage, "B").await, line);
        stage.t.redis::<()>(&["FLUSHALL"]).await;
        assert!(reconciler::reconcile_once(&stage.t.app.maintenance).await.unwrap().unwrap().rebuild);
        assert_eq!(stage.t.run_due().await.len(), 0, "no slot is free: two calls are open");
        assert_eq!(those_before(&stage, "B").await, line);
        assert_eq!(those_before(&stage, "A").await, line[..1]);
        let stats = stage.t.app.core.store.slot_stats(&["S1"]).await.unwrap();
        assert_eq!((stats.in_use, stats.groups[0].waiting), (2, 3));
    };
    // The workers continue their calls while Redis is lost, and then die.
    tokio::select! {
        (first, second) = async { tokio::join!(stage.t.perform(&taken[0]), stage.t.perform(&taken[1])) } => {
            panic!("the provider does not answer: {first:?} {second:?}")
        }
        () = lose_redis => {}
    }
    stage.turn_knobs(|knobs| knobs.hang_rate = "0".parse().unwrap());
    stage.t.advance(secs(60)).await;
    eventually("each has had its turn", || async {
        stage.t.run_due().await;
        stage.t.app.core.store.wait_for_slot_releases().await;
        stage.t.count("SELECT count(*) FROM transactions WHERE status = 'SUKSES'").await == 5
    })
    .await;
    for id in ["A", "B", "C"] {
        assert_eq!(stage.calls(id).await, ["start success"], "{id}");
    }
    for id in ["X", "Y"] {
        assert_eq!(stage.calls(id).await, ["start lost", "start success"], "{id}");
    }
    stage.assert_judge_content();
}

/// SQL can insert a server id that is not a valid slot group. That server has no limit.
#[tokio::test]
async fn unusable_slot_name_does_not_block_rebuild() {
    let stage = ProviderStage::start().await;
    let nameless =
        "INSERT INTO provider_servers (id, provider, base_url, changed_by) VALUES ('-', 'sim', 'http://x', 'me')";
    stage.t.sql(nameless).await;
    stage.run_binding("B", "S1", json!({ "interval_ms": [3600000, 3600000] })).await;
    stage.t.redis::<()>(&["FLUSHALL"]).await;
    assert!(reconciler::reconcile_once(&stage.t.app.maintenance).await.unwrap().unwrap().rebuild);
    stage.t.run_due().await;
    assert_eq!(stage.calls("B").await, ["start success"]);
}

/// A rollback can leave rows of a newer version.
#[tokio::test]
async fn a_row_that_another_version_wrote_holds_up_no_other() {
    let stage = ProviderStage::start().await;
    for id in ["A", "B", "NEW"] {
        stage.run_binding(id, "S1", json!({ "interval_ms": [3600000, 3600000] })).await;
    }
    stage.t.sql("UPDATE bindings SET config = config || '{\"of_tomorrow\": 1}' WHERE id = 'NEW'").await;
    let (bindings, [a, b, new]) = (&stage.t.app.bindings.rows, ["A", "B", "NEW"].map(binding_id));
    let loaded = tokio::join!(bindings.load_binding(&a), bindings.load_binding(&new), bindings.load_binding(&b));
    assert!(matches!(loaded, (Ok(Some(_)), Err(_), Ok(Some(_)))), "{loaded:?}");
    let ran = stage.t.run_due().await;
    let other = ran.iter().find(|ran| ran.id == "cycle:NEW:1").unwrap();
    assert!(matches!(other.outcome, Outcome::Snooze { .. }), "it spends no try: {other:?}");

    stage.t.redis::<()>(&["FLUSHALL"]).await;
    assert!(reconciler::reconcile_once(&stage.t.app.maintenance).await.unwrap().unwrap().rebuild);
    let timers: Vec<String> = stage.t.timers().await.into_keys().collect();
    assert_eq!(timers, ["cycle:A:2", "cycle:B:2"]);
    for id in ["A", "B"] {
        assert_eq!(stage.calls(id).await, ["start success"], "{id}");
    }

    // The binding continues under a version that can read its row.
    stage.t.sql("UPDATE bindings SET config = config - 'of_tomorrow'").await;
    stage.t.advance(secs(10)).await;
    reconciler::reconcile_once(&stage.t.app.maintenance).await.unwrap();
    stage.t.run_due().await;
    assert_eq!(stage.calls("NEW").await, ["start success"]);
}

/// A worker holds the only slot of a server. Its claim reaches Postgres only after Redis was lost and gave the slot to
/// another job.
#[tokio::test]
async fn late_claim_without_its_slot_makes_no_call() {
    let stage = ProviderStage::start().await;
    stage.create_server("S2", 1).await;
    stage.turn_knobs(|knobs| {
        knobs.hang_rate = "1".parse().unwrap();
        knobs.max_open_per_server = 1;
    });
    let once = json!({ "interval_ms": [3600000, 3600000], "call_timeout_ms": 60000 });
    stage.run_binding("FIRST", "S2", once.clone()).await;
    stage.t.advance(secs(1)).await;
    stage.run_binding("SLOW", "S2", once).await;
    let taken = stage.t.take().await;
    let slow = taken.iter().find(|leased| leased.delivery.id.as_str() == "cycle:SLOW:1").unwrap();

    let mut writer = lasting_transaction(&stage.t.postgres).await;
    sqlx::query("LOCK TABLE transactions IN EXCLUSIVE MODE").execute(&mut *writer).await.unwrap();
    let lose_redis = async {
        let in_use = || async { stage.t.app.core.store.slot_stats(&["S2"]).await.unwrap().in_use };
        eventually("it has the slot", || async { in_use().await == 1 }).await;
        stage.t.redis::<()>(&["FLUSHALL"]).await;
        assert!(reconciler::reconcile_once(&stage.t.app.maintenance).await.unwrap().unwrap().rebuild);
        let handed = stage.t.take().await;
        let ids: Vec<_> = handed.iter().map(|leased| leased.delivery.id.as_str()).collect();
        assert_eq!((ids, in_use().await), (vec!["cycle:FIRST:1"], 1));
        writer.rollback().await.unwrap();
        let is_decided = || async {
            let calls = stage.calls("SLOW").await;
            calls == ["start unreachable"] || stage.sim.read_report().judge.calls > 0
        };
        eventually("the claim is written, and what came of it", is_decided).await;
        assert_eq!(stage.sim.read_report().judge.calls, 0, "the slot is that of another");
        handed
    };
    let (_, handed) = tokio::join!(stage.t.perform(slow), lose_redis);
    tokio::select! {
        outcome = stage.t.perform(&handed[0]) => panic!("the provider does not answer: {outcome:?}"),
        () = eventually("the other calls", || async { stage.sim.read_report().open == 1 }) => {}
    }
    stage.assert_judge_content();
}
