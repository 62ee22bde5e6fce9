//! Workers that die with an open call, and the bindings they leave.

use model::binding::{BindingPhase, BindingState, TransactionStatus};
use serde_json::json;

use test_support::{ProviderStage, eventually, secs};

/// Interval at which no second cycle starts during the test.
const HOUR_MS: u32 = 3_600_000;

/// Leases the only job, claims its call and sends it, and dies before the answer arrives.
async fn die_with_open_call(stage: &ProviderStage) {
    stage.turn_knobs(|knobs| knobs.hang_rate = "1".parse().unwrap());
    let taken = stage.t.take().await;
    assert_eq!(taken.len(), 1);
    tokio::select! {
        outcome = stage.t.perform(&taken[0]) => panic!("the provider does not answer: {outcome:?}"),
        () = eventually("the call is open", || async { stage.sim.read_report().open == 1 }) => {}
    }
    stage.turn_knobs(|knobs| knobs.hang_rate = "0".parse().unwrap());
}

/// Promise 8: lease, slots and call have expired within ten seconds.
#[tokio::test]
async fn binding_of_killed_worker_resumes_in_ten_seconds() {
    let stage = ProviderStage::start().await;
    stage.run_binding("B", "S1", json!({ "interval_ms": [HOUR_MS, HOUR_MS] })).await;
    die_with_open_call(&stage).await;
    // The copy of the lock shows the claim's holder and fence to observers.
    eventually("the lock is copied", || async {
        let lock: Option<String> = stage.t.redis(&["GET", "wrk:lock:B"]).await;
        lock.is_some_and(|lock| lock.starts_with("dispatchq:") && lock.ends_with(" 2"))
    })
    .await;
    stage.t.run_for(secs(10)).await;
    stage.t.run_due().await;
    assert_eq!(stage.calls("B").await, ["start lost", "start success"]);
    // A worker that dies before its claim is replaced in the same time.
    stage.run_binding("C", "S1", json!({ "interval_ms": [HOUR_MS, HOUR_MS] })).await;
    assert_eq!(stage.t.take().await.len(), 1);
    stage.t.run_for(secs(10)).await;
    stage.t.run_due().await;
    assert_eq!(stage.calls("C").await, ["start success"]);
    stage.assert_judge_content();
}

/// The server is paused for longer than the transaction's timeout.
#[tokio::test]
async fn lost_call_at_paused_server_ends_at_deadline() {
    let stage = ProviderStage::start().await;
    stage.run_binding("B", "S1", json!({ "interval_ms": [HOUR_MS, HOUR_MS], "processing_timeout_ms": 20000 })).await;
    die_with_open_call(&stage).await;
    stage
        .t
        .sql("UPDATE provider_servers SET failures = 10, paused_until = dispatchq_now() + interval '5 minutes'")
        .await;
    let ran = stage.t.run_for(secs(120)).await;
    assert!(ran.len() < 10, "a job that may not call waits: {ran:?}");
    assert_eq!(stage.calls("B").await, ["start lost"]);
    let row = stage.binding("B").await;
    assert_eq!((row.state, row.phase, row.unresolved), (BindingState::Running, BindingPhase::Idle, 1));
    assert_eq!(stage.headers("B").await[0].status, TransactionStatus::Unresolved);
    stage.t.assert_sound().await;

    // The provider is asked for the result as soon as the server is called again.
    stage.t.run_for(secs(600)).await;
    let header = stage.headers("B").await.remove(0);
    assert_eq!((header.status, header.reason.as_deref()), (TransactionStatus::Gagal, Some("unknown_at_provider")));
    assert_eq!(stage.binding("B").await.unresolved, 0);
    stage.assert_judge_content();
}
