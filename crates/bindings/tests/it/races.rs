//! Two changes of a binding are committed one after the other and reach Redis in either order.

use jobs::queues::BINDING;
use model::binding::{
    Binding, BindingCommand, BindingState, BindingTimer, CommandOutcome, ServerId, StopReason, decide_command, derive,
};
use serde_json::json;

use bindings::{
    change::move_jobs,
    store::write::{BindingWrite, WriteVerdict},
};
use queue::{
    JobId, NewJob, Outcome, SlotNeed,
    store::{JobState, OngoingWork},
};
use test_support::{ProviderStage, binding_id, by, secs};

const STOP: BindingCommand = BindingCommand::Stop { reason: StopReason::ManualStop };

/// A committed change that has not reached Redis.
struct Committed {
    before: Binding,
    after: Binding,
}

impl Committed {
    async fn write(stage: &ProviderStage, command: &BindingCommand) -> Self {
        let bindings = &stage.t.app.bindings.rows;
        let loaded = bindings.load_binding(&binding_id("B")).await.unwrap().unwrap();
        let decided = decide_command(&loaded.binding, command, &by("operator:ops"), loaded.now);
        let CommandOutcome::Write(change) = decided else { panic!("{decided:?}") };
        let after = loaded.binding.apply(&change);
        let write = BindingWrite { change: *change, owner: "ops:1".into(), call: None };
        let written = bindings.write_binding(write).await.unwrap();
        assert_eq!(written, WriteVerdict::Written { messages: Vec::new() });
        Self { before: loaded.binding, after }
    }

    /// Updates Redis, as the process does after its commit.
    async fn reach_redis(&self, stage: &ProviderStage) {
        let jobs: Vec<NewJob> = derive(&self.after, self.after.updated_at).map(|timer| timer.job).into_iter().collect();
        move_jobs(&stage.t.app.bindings, &self.before, &self.after, jobs).await.unwrap();
    }
}

fn job_id(id: &str) -> JobId {
    JobId::parse(id).unwrap()
}

async fn state_of(stage: &ProviderStage, id: &str) -> Option<JobState> {
    stage.t.app.core.store.find_job(&job_id(id), &[BINDING]).await.unwrap().map(|job| job.state)
}

/// Makes other jobs hold every slot of `S1` for this time.
async fn hold_server(stage: &ProviderStage, seconds: u64) {
    let hold = secs(seconds);
    let works = ["X", "Y"].map(|name| OngoingWork {
        queue: BINDING,
        id: job_id(&format!("cycle:{name}:1")),
        need: SlotNeed::new("S1", name, hold).unwrap(),
        left: hold,
    });
    stage.t.app.core.store.restore_slots(&works).await.unwrap();
}

/// Creates a running binding whose first cycle is due, or parked because other jobs hold the slots.
async fn binding_with_job(parked: bool) -> ProviderStage {
    let stage = ProviderStage::start().await;
    if parked {
        hold_server(&stage, 600).await;
    }
    stage.run_binding("B", "S1", json!({ "interval_ms": [60000, 60000] })).await;
    if parked {
        stage.t.run_due().await;
    }
    let wanted = if parked { JobState::Parked } else { JobState::Due };
    assert_eq!(state_of(&stage, "cycle:B:1").await, Some(wanted));
    stage
}

#[tokio::test]
async fn start_after_stop_is_due_in_any_order() {
    for (parked, stop_is_last) in [(false, false), (false, true), (true, false), (true, true)] {
        let stage = binding_with_job(parked).await;
        let stop = Committed::write(&stage, &STOP).await;
        let start = Committed::write(&stage, &BindingCommand::Start).await;
        let order = if stop_is_last { [&start, &stop] } else { [&stop, &start] };
        for change in order {
            change.reach_redis(&stage).await;
        }
        let due = derive(&stage.binding("B").await, start.after.updated_at);
        assert_eq!(due.as_ref().map(|timer| timer.id().as_str()), Some("cycle:B:1"));
        assert_eq!(state_of(&stage, "cycle:B:1").await, Some(JobState::Due), "{parked} {stop_is_last}");
        stage.t.advance(secs(if parked { 601 } else { 0 })).await;
        stage.t.run_due().await;
        assert_eq!(stage.calls("B").await, ["start success"], "{parked} {stop_is_last}");
        stage.assert_judge_content();
    }
}

#[tokio::test]
async fn stop_after_start_runs_nothing_in_any_order() {
    for (parked, start_is_last) in [(false, false), (false, true), (true, false), (true, true)] {
        let stage = binding_with_job(parked).await;
        stage.stop("B").await;
        assert_eq!(state_of(&stage, "cycle:B:1").await, None);
        let start = Committed::write(&stage, &BindingCommand::Start).await;
        let stop = Committed::write(&stage, &STOP).await;
        let order = if start_is_last { [&stop, &start] } else { [&start, &stop] };
        for change in order {
            change.reach_redis(&stage).await;
        }
        // The late start has enqueued a job, which finds the binding stopped.
        stage.t.advance(secs(601)).await;
        stage.t.run_due().await;
        assert_eq!(stage.calls("B").await, Vec::<String>::new(), "{parked} {start_is_last}");
        assert_eq!(
            (state_of(&stage, "cycle:B:1").await, stage.binding("B").await.state),
            (None, BindingState::Stopped)
        );
        stage.assert_judge_content();
    }
}

#[tokio::test]
async fn parked_job_follows_the_binding_to_its_server() {
    let stage = ProviderStage::start().await;
    stage.create_server("S2", 2).await;
    hold_server(&stage, 600).await;
    stage.run_binding("B", "S1", json!({ "interval_ms": [60000, 60000] })).await;
    // A worker has taken the job and found no slots. Before the worker settles it, the binding stops and moves.
    let leased = stage.t.take().await.remove(0);
    let outcome = stage.t.perform(&leased).await;
    assert!(matches!(outcome, Outcome::Park(_)), "{outcome:?}");
    stage.stop("B").await;
    let server: ServerId = "S2".parse().unwrap();
    stage.command("B", BindingCommand::Patch { server_id: Some(server), config: None }).await;
    stage.t.settle(&leased, outcome).await;
    assert_eq!(state_of(&stage, "cycle:B:1").await, Some(JobState::Parked));
    stage.command("B", BindingCommand::Start).await;
    assert_eq!(state_of(&stage, "cycle:B:1").await, Some(JobState::Due));
    stage.t.run_due().await;
    assert_eq!(stage.calls("B").await, ["start success"]);
    assert_eq!(stage.headers("B").await[0].server_id.as_str(), "S2");
    let timer = derive(&stage.binding("B").await, stage.binding("B").await.updated_at);
    assert_eq!(timer.as_ref().map(BindingTimer::id), Some(&job_id("cycle:B:2")));
}

#[tokio::test]
async fn paused_stopped_or_moved_binding_leaves_line() {
    for command in [BindingCommand::Pause, STOP] {
        let stage = binding_with_job(true).await;
        stage.command("B", command.clone()).await;
        assert_eq!(state_of(&stage, "cycle:B:1").await, None, "{command:?}");
        assert_eq!(stage.t.app.core.store.slot_stats(&["S1"]).await.unwrap().groups[0].waiting, 0, "{command:?}");
        if command == STOP {
            stage.create_server("S2", 2).await;
            let moved = BindingCommand::Patch { server_id: Some("S2".parse().unwrap()), config: None };
            stage.command("B", moved).await;
            stage.command("B", BindingCommand::Start).await;
        } else {
            stage.command("B", BindingCommand::Resume).await;
            stage.t.advance(secs(601)).await;
        }
        stage.t.run_due().await;
        assert_eq!(stage.calls("B").await, ["start success"], "{command:?}");
        stage.assert_judge_content();
    }
}
