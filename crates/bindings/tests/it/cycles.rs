//! Cycles on a provider run one after another, and each kind of answer has its own effect.

use model::binding::{BindingCommand, BindingPhase, BindingState, StopReason, TransactionStatus};
use serde_json::json;

use test_support::{Counting, ProviderStage, binding_id, secs};

#[tokio::test]
async fn one_transaction_follows_the_other_until_the_stop() {
    let stage = ProviderStage::start().await;
    stage.run_binding("B", "S1", json!({ "interval_ms": [400, 500] })).await;
    stage.t.run_for(secs(5)).await;
    let begun = stage.headers("B").await.len();
    // Each cycle takes 400 to 500 ms, plus the time of its calls on this machine.
    assert!((3..=13).contains(&begun), "{begun} cycles in 5 s");
    let stopped = stage.stop("B").await;
    assert_eq!((stopped.state, stopped.phase), (BindingState::Stopped, BindingPhase::Idle));
    assert_eq!(stage.t.run_for(secs(5)).await.len(), 0, "no job is left");
    let headers = stage.headers("B").await;
    assert_eq!(headers.iter().map(|h| h.cycle).collect::<Vec<_>>(), (1..=headers.len() as i64).collect::<Vec<_>>());
    assert!(headers.iter().all(|h| h.status == TransactionStatus::Sukses && h.provider_ref.is_some()), "{headers:?}");
    assert_eq!(stage.calls("B").await, vec!["start success"; headers.len()]);
    let kinds = stage.t.texts("SELECT kind FROM binding_events ORDER BY seq").await;
    assert_eq!(kinds, ["created", "started", "stopped"]);
    stage.assert_judge_content();
    assert_eq!(stage.sim.read_report().judge.duplicates, 0);
}

#[tokio::test]
async fn job_of_the_next_cycle_is_delivered_with_its_slots() {
    let stage = ProviderStage::start().await;
    stage.run_binding("B", "S1", json!({ "interval_ms": [0, 1] })).await;
    for has_slots in [false, true, true] {
        stage.t.app.core.store.wait_for_slot_releases().await;
        let leased = stage.t.take().await.remove(0);
        assert_eq!(leased.delivery.slots.is_some(), has_slots);
        let outcome = stage.t.perform(&leased).await;
        stage.t.settle(&leased, outcome).await;
        stage.t.advance(secs(1)).await;
    }
    assert_eq!(stage.calls("B").await, vec!["start success"; 3]);
    stage.assert_judge_content();
}

#[tokio::test]
async fn pause_keeps_polling_the_open_transaction() {
    let stage = ProviderStage::start().await;
    stage.turn_knobs(|knobs| {
        knobs.processing_rate = "1".parse().unwrap();
        knobs.processing_duration = "1h".parse().unwrap();
    });
    stage.run_binding("B", "S1", json!({ "processing_timeout_ms": 60000 })).await;
    stage.t.run_due().await;
    assert_eq!(stage.binding("B").await.phase, BindingPhase::Processing);
    stage.command("B", BindingCommand::Pause).await;
    stage.t.run_for(secs(10)).await;
    let calls = stage.calls("B").await;
    assert!(calls.len() >= 4 && calls[0] == "start processing", "{calls:?}");
    assert!(calls[1..].iter().all(|call| call == "status processing"), "{calls:?}");
    // The transaction timed out: a desk is notified, the binding pauses, and the provider is still polled.
    stage.t.run_for(secs(60)).await;
    let row = stage.binding("B").await;
    assert_eq!((row.state, row.phase, row.unresolved), (BindingState::Paused, BindingPhase::Idle, 1));
    assert_eq!(stage.headers("B").await[0].status, TransactionStatus::Unresolved);
    stage.t.run_for(secs(200)).await;
    let settles = stage.calls("B").await.iter().filter(|call| *call == "settle processing").count();
    assert!((2..=5).contains(&settles), "{settles} asks: the pauses double from 30 s on");
    assert_eq!(stage.headers("B").await.len(), 1, "no cycle begins while it is paused");
    stage.assert_judge_content();
}

#[tokio::test]
async fn too_little_money_stops_the_binding_with_exactly_that_reason() {
    let stage = ProviderStage::start().await;
    stage.sim.set_balance("acct-B", 3);
    stage.run_binding("B", "S1", json!({})).await;
    stage.t.run_for(secs(20)).await;
    let row = stage.binding("B").await;
    assert_eq!((row.state, row.reason), (BindingState::Stopped, Some(StopReason::InsufficientBalanceBeforeStart)));
    let headers = stage.headers("B").await;
    let ends: Vec<_> = headers.iter().map(|h| (h.status, h.reason.as_deref())).collect();
    let paid = (TransactionStatus::Sukses, None);
    let refused = (TransactionStatus::Gagal, Some("insufficient_balance_before_start"));
    assert_eq!(ends, [paid, paid, paid, refused]);
    // Money alone does not start the binding again; a person must start it.
    stage.sim.set_balance("acct-B", 1);
    assert_eq!(stage.t.run_for(secs(20)).await.len(), 0);
    assert_eq!(stage.command("B", BindingCommand::Start).await.state, BindingState::Running);
    stage.t.run_for(secs(20)).await;
    assert_eq!(stage.headers("B").await.len(), 6);
    stage.assert_judge_content();
}

#[tokio::test]
async fn a_lost_answer_is_made_good_under_the_same_key() {
    let stage = ProviderStage::start().await;
    stage.turn_knobs(|knobs| knobs.lost_answer_rate = "1".parse().unwrap());
    stage.run_binding("B", "S1", json!({ "interval_ms": [60000, 60000] })).await;
    stage.t.run_due().await;
    assert_eq!(stage.calls("B").await, ["start unreachable"]);
    stage.turn_knobs(|knobs| knobs.lost_answer_rate = "0".parse().unwrap());
    stage.t.run_for(secs(30)).await;
    assert_eq!(stage.calls("B").await, ["start unreachable", "start success"]);
    let report = stage.sim.read_report();
    assert_eq!((report.judge.duplicates, report.known_transactions), (1, 1));
    stage.assert_judge_content();
}

#[tokio::test]
async fn failing_server_is_paused_without_failing_bindings() {
    let stage = ProviderStage::with(|config| config.bindings.breaker.failures = 3).await;
    stage.turn_knobs(|knobs| knobs.down = true);
    stage.run_binding("B", "S1", json!({ "processing_timeout_ms": 600_000 })).await;
    stage.t.run_for(secs(60)).await;
    let tried = stage.calls("B").await.len();
    assert!((3..=10).contains(&tried), "{tried} calls in a minute: the pauses grow to 30 s");
    let paused = stage.t.count("SELECT count(*) FROM provider_servers WHERE paused_until IS NOT NULL").await;
    assert_eq!((paused, stage.binding("B").await.failures), (1, 0));
    stage.turn_knobs(|knobs| knobs.down = false);
    stage.t.run_for(secs(60)).await;
    assert_eq!(stage.headers("B").await[0].status, TransactionStatus::Sukses);
    let forgotten =
        stage.t.count("SELECT count(*) FROM provider_servers WHERE failures = 0 AND paused_until IS NULL").await;
    assert_eq!(forgotten, 1);
    stage.assert_judge_content();
}

#[tokio::test]
async fn what_no_contract_knows_is_recorded_and_asked_about() {
    for (fault, word) in [("non_json", "unreadable"), ("oversized", "unreadable"), ("unknown_status", "unreadable")] {
        let stage = ProviderStage::start().await;
        let set = |rate: &'static str| {
            stage.turn_knobs(|knobs| match fault {
                "non_json" => knobs.non_json_rate = rate.parse().unwrap(),
                "oversized" => knobs.oversized_rate = rate.parse().unwrap(),
                _ => knobs.unknown_status_rate = rate.parse().unwrap(),
            });
        };
        set("1");
        stage.run_binding("B", "S1", json!({ "interval_ms": [60000, 60000] })).await;
        stage.t.run_due().await;
        set("0");
        stage.t.run_for(secs(5)).await;
        assert_eq!(stage.calls("B").await, [format!("start {word}"), "status success".to_owned()], "{fault}");
        let kept: i64 = stage.t.count("SELECT max(octet_length(response))::bigint FROM transaction_snapshots").await;
        assert!(kept <= 4096, "{kept} bytes of an answer are kept");
        stage.assert_judge_content();
    }
}

#[tokio::test]
async fn a_worker_may_have_any_name() {
    let name = "日本語".repeat(50);
    let stage = ProviderStage::with(|config| config.worker.name = name.clone()).await;
    stage.run_binding("B", "S1", json!({ "interval_ms": [60000, 60000] })).await;
    stage.t.run_due().await;
    assert_eq!(stage.calls("B").await, ["start success"]);
    let owners = stage.t.texts("SELECT owner FROM transaction_snapshots WHERE part = 'claim'").await;
    assert!(owners[0].starts_with("日本語"), "{owners:?}");
}

#[tokio::test]
async fn only_named_bindings_have_their_own_series() {
    let counting = Counting::start();
    let stage = ProviderStage::with(|config| config.bindings.metrics_for = vec![binding_id("B")]).await;
    for (id, balance) in [("B", 2), ("C", 1)] {
        stage.sim.set_balance(&format!("acct-{id}"), balance);
        stage.run_binding(id, "S1", json!({})).await;
    }
    stage.t.run_for(secs(5)).await;
    let counted = counting.read();
    let of_b =
        |status: &str| counted.value(&format!("dispatchq_binding_outcomes_total{{binding=\"B\",status=\"{status}\"}}"));
    assert_eq!([of_b("SUKSES"), of_b("GAGAL")], [2.0, 1.0]);
    assert!(counting.of("dispatchq_binding_outcomes_total").iter().all(|series| series.contains("binding=\"B\"")));
    let of_server = |status: &str, reason: &str| {
        let labels = format!("reason=\"{reason}\",server=\"S1\",status=\"{status}\"");
        counted.value(&format!("dispatchq_binding_transactions_total{{{labels}}}"))
    };
    let ended = [of_server("SUKSES", "none"), of_server("GAGAL", "insufficient_balance_before_start")];
    assert_eq!(ended, [3.0, 2.0]);
    let stops = counted.value("dispatchq_binding_stops_total{reason=\"insufficient_balance_before_start\"}");
    assert_eq!(stops, 2.0);
}
