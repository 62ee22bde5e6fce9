//! `binding explain`: the reason, the next step, the holders of claim and slots, and the suggested action.

use model::binding::{BindingPhase, CallAction};
use serde_json::json;

use bindings::{
    explain::{BindingExplanation, JobPlace, gather},
    servers,
};
use queue::LeasedJob;
use test_support::{ProviderStage, binding_id, eventually};

async fn explain(stage: &ProviderStage, id: &str) -> BindingExplanation {
    gather::explain_binding(&stage.t.app.bindings, &binding_id(id)).await.unwrap()
}

fn commands(e: &BindingExplanation) -> Vec<&str> {
    e.to_do.iter().filter_map(|advice| advice.command.as_deref()).collect()
}

fn job_named<'a>(taken: &'a [LeasedJob], id: &str) -> &'a LeasedJob {
    taken.iter().find(|leased| leased.delivery.id.as_str() == id).unwrap()
}

#[tokio::test]
async fn explain_shows_parked_place_and_held_slots() {
    let stage = ProviderStage::start().await;
    stage.create_server("S2", 1).await;
    servers::publish_limits(&stage.t.app.bindings).await.unwrap();
    stage.turn_knobs(|knobs| knobs.hang_rate = "1".parse().unwrap());
    for id in ["A", "B"] {
        stage.run_binding(id, "S2", json!({ "call_timeout_ms": 60_000 })).await;
    }
    let taken = stage.t.take().await;
    let look = async {
        eventually("the call is open", || async { stage.binding("A").await.phase == BindingPhase::Calling }).await;
        let second = job_named(&taken, "cycle:B:1");
        let outcome = stage.t.perform(second).await;
        stage.t.settle(second, outcome).await;

        let parked = explain(&stage, "B").await;
        let place = parked.next.as_ref().and_then(|next| next.place.as_ref());
        assert!(matches!(place, Some(JobPlace::Parked { before: 0, behind: None, .. })), "{parked:?}");
        assert!(parked.why.contains("Cycle 1 has been due since"), "{}", parked.why);
        let slots = parked.server.slots.unwrap();
        assert_eq!((slots.in_use, slots.limit, slots.waiting), (1, 1, 1));
        assert_eq!((parked.claim.is_none(), parked.slots.len()), (true, 0));
        assert_eq!(commands(&parked), ["dispatchq work"], "no worker lives in this test");

        let holder = explain(&stage, "A").await;
        let claim = holder.claim.as_ref().unwrap();
        assert_eq!((claim.call_no, claim.action), (1, CallAction::Start));
        assert!(claim.owner.is_some() && holder.why.contains("Call 1 (start of A.1) is open"), "{holder:?}");
        let held: Vec<_> = holder.slots.iter().map(|held| held.job.as_str()).collect();
        assert_eq!(held, ["cycle:A:1"]);
        let place = holder.next.as_ref().and_then(|next| next.place.as_ref());
        assert!(matches!(place, Some(JobPlace::Running { worker: None, .. })), "{holder:?}");
    };
    tokio::select! {
        outcome = stage.t.perform(job_named(&taken, "cycle:A:1")) => panic!("the provider does not answer: {outcome:?}"),
        () = look => {}
    }
}

#[tokio::test]
async fn without_redis_the_rest_is_said_all_the_same() {
    let mut stage = ProviderStage::start().await;
    stage.run_binding("B", "S1", json!({})).await;
    stage.t.redis.kill().await;
    let e = explain(&stage, "B").await;
    assert!(e.redis_error.is_some() && e.why.contains("It is running"), "{e:?}");
    assert!(e.next.is_some_and(|next| next.job == "cycle:B:1" && next.place.is_none()));
    assert_eq!(e.events[0].kind, "started");
}
