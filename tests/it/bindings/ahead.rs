//! Calls that are claimed ahead of their turn, while all slots are taken.

use std::time::Duration;

use dispatch::recovery::reconciler;
use jobs::queues;
use model::binding::{BindingPhase, TransactionStatus};
use serde_json::json;
use workers::{
    JobId, LeasedJob, Outcome, SlotNeed,
    store::{EndedSlots, SlotLimits, SlotVerdict},
};

use crate::support::{ProviderStage, eventually, secs};

/// One slot for all calls, and work of this process that has it.
async fn take_the_only_slot(stage: &ProviderStage) -> EndedSlots {
    let store = &stage.t.app.store;
    store.set_slot_limits(&SlotLimits::for_shard(1)).await.unwrap();
    let (job, need) = (JobId::parse("cycle:other:1").unwrap(), SlotNeed::new("S1", "other", secs(60)).unwrap());
    let SlotVerdict::Granted(grant) = store.acquire_slots(queues::BINDING, &job, &need).await.unwrap() else {
        panic!("the slot is taken");
    };
    store.wait_for_turn(&job, &grant, Duration::ZERO).await.unwrap();
    EndedSlots { job, grant }
}

/// A binding's first cycle, in line and then leased ahead.
async fn lease_ahead(stage: &ProviderStage, id: &str, call_timeout_ms: u32) -> LeasedJob {
    let once = json!({ "interval_ms": [3600000, 3600000], "call_timeout_ms": call_timeout_ms });
    stage.run_binding(id, "S1", once).await;
    let ran = stage.t.run_due().await;
    assert!(matches!(ran[..], [ref only] if matches!(only.outcome, Outcome::Park(_))), "{ran:?}");
    let mut ahead = stage.t.take_ahead(1).await;
    assert_eq!(ahead.len(), 1);
    ahead.remove(0)
}

async fn wait_until_claimed(stage: &ProviderStage, id: &str) {
    eventually("the call is claimed", || async { stage.binding(id).await.phase == BindingPhase::Calling }).await;
    assert_eq!(stage.calls(id).await, ["start -"]);
}

#[tokio::test]
async fn a_call_is_claimed_while_another_is_open_and_sent_when_that_has_ended() {
    let stage = ProviderStage::start().await;
    let other = take_the_only_slot(&stage).await;
    let leased = lease_ahead(&stage, "B", 60_000).await;
    let end_the_other = async {
        wait_until_claimed(&stage, "B").await;
        assert_eq!(stage.sim.read_report().judge.calls, 0, "it waits for its turn");
        stage.t.app.store.release_slots_soon(other);
    };
    let (outcome, ()) = tokio::join!(stage.t.perform(&leased), end_the_other);
    stage.t.settle(&leased, outcome).await;
    assert_eq!(stage.calls("B").await, ["start success"]);
    stage.t.app.store.wait_for_slot_releases().await;
    assert_eq!(stage.t.app.store.slot_stats(&["S1"]).await.unwrap().in_use, 0);
    stage.assert_judge_content();
}

#[tokio::test]
async fn a_claimed_call_whose_turn_does_not_come_is_not_sent_and_is_made_later() {
    let stage = ProviderStage::start().await;
    let other = take_the_only_slot(&stage).await;
    let leased = lease_ahead(&stage, "B", 1_000).await;
    let outcome = stage.t.perform(&leased).await;
    stage.t.settle(&leased, outcome).await;
    assert_eq!(stage.sim.read_report().judge.calls, 0);
    assert_eq!(stage.calls("B").await, ["start unreachable"]);

    stage.t.app.store.release_slots_soon(other);
    stage.t.app.store.wait_for_slot_releases().await;
    stage.t.run_for(secs(60)).await;
    let headers = stage.headers("B").await;
    assert_eq!(headers.iter().map(|header| header.status).collect::<Vec<_>>(), [TransactionStatus::Sukses]);
    stage.assert_judge_content();
}

#[tokio::test]
async fn a_claimed_call_that_waits_for_its_turn_holds_a_slot_after_redis_is_lost() {
    let stage = ProviderStage::start().await;
    let other = take_the_only_slot(&stage).await;
    let leased = lease_ahead(&stage, "B", 60_000).await;
    let lose_redis = async {
        wait_until_claimed(&stage, "B").await;
        stage.t.redis::<()>(&["FLUSHALL"]).await;
        assert!(reconciler::reconcile_once(&stage.t.app).await.unwrap().unwrap().rebuild);
        stage.t.app.store.set_slot_limits(&SlotLimits::for_shard(1)).await.unwrap();
        let once = json!({ "interval_ms": [3600000, 3600000] });
        stage.run_binding("C", "S1", once).await;
        stage.t.run_due().await;
        assert_eq!(stage.calls("C").await, Vec::<String>::new(), "the one slot is that of the claimed call");
        stage.t.app.store.release_slots_soon(other);
    };
    let (_, ()) = tokio::join!(stage.t.perform(&leased), lose_redis);
    assert_eq!(stage.calls("B").await, ["start success"]);
    // Nothing but its time ends a slot that was put back.
    stage.t.run_for(secs(120)).await;
    assert_eq!(stage.calls("C").await, ["start success"]);
    stage.assert_judge_content();
}
