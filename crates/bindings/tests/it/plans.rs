//! Bulk actions: ids are stored first, and each item runs once at a limited rate, even when workers die.

use model::{
    binding::{BindingCommand, BindingState, BindingVerb},
    plan::{Plan, PlanConflict, PlanItem, PlanState},
};
use serde_json::json;
use uuid::Uuid;

use bindings::{commands, list::BindingFilter};
use desk::plans::{
    binding_plans, control,
    create::{self, PlanMode},
    error::PlanError,
    store,
};
use maintenance::{
    periodic::cleanup,
    recovery::{reconciler, repair},
};
use model::ids::PlanId;
use test_support::{ProviderStage, binding_id, by, millis, secs};

/// Starts a stage whose plans run two items per second. The bindings are STOPPED and run one cycle per hour once
/// started.
async fn stage_with(ids: &[&str]) -> ProviderStage {
    let stage = ProviderStage::with(|config| config.plans.items_per_second = 2).await;
    for id in ids {
        create_idle(&stage, id).await;
    }
    stage
}

async fn create_idle(stage: &ProviderStage, id: &str) {
    stage.create_binding(id, "S1", json!({ "interval_ms": [3_600_000, 3_600_000] })).await;
}

/// Creates a plan of one operator for all bindings.
async fn plan_for_all(stage: &ProviderStage, verb: BindingVerb, mode: PlanMode) -> Plan {
    let (app, author) = (&stage.t.app, by("operator:maker"));
    let reason = Some("the books are closed".to_owned());
    let draft = binding_plans::draft_plan(&app.core, &BindingFilter::default(), verb, reason, &author).await.unwrap();
    create::store_draft(&app.core, PlanId::from_uuid(Uuid::now_v7()), &draft, mode, &author).await.unwrap()
}

async fn run(stage: &ProviderStage, plan: &Plan) -> Result<Plan, PlanError> {
    let ran = control::run_plan(&stage.t.app.core, plan.id, &by("operator:runner")).await?;
    Ok(ran.plan().clone())
}

async fn reload(stage: &ProviderStage, plan: &Plan) -> Plan {
    create::find_plan(&stage.t.app.core, plan.id).await.unwrap()
}

async fn items(stage: &ProviderStage, plan: &Plan) -> Vec<PlanItem> {
    store::list_items(&stage.t.app.core.db, plan.id, None, "", 1000).await.unwrap()
}

/// Returns `id state` of each item.
async fn fates(stage: &ProviderStage, plan: &Plan) -> Vec<String> {
    items(stage, plan).await.into_iter().map(|item| format!("{} {}", item.subject_id, item.state)).collect()
}

async fn states(stage: &ProviderStage) -> Vec<String> {
    stage.t.texts("SELECT id || ' ' || state FROM bindings ORDER BY id").await
}

fn job_of(plan: &Plan) -> String {
    format!("plan:{}", plan.id)
}

#[tokio::test]
async fn dry_run_stores_each_id_and_its_fate() {
    let stage = stage_with(&["A", "B", "C", "D"]).await;
    stage.command("B", BindingCommand::Start).await;
    stage.command("C", BindingCommand::Start).await;
    stage.command("C", BindingCommand::Pause).await;
    // Binding D has an open call.
    stage
        .t
        .sql("UPDATE bindings SET state = 'STOPPING', reason = 'manual_stop', phase = 'CALLING', cycle = 1, trx_id = 'D.1',
                     call_no = 1, call_action = 'start', call_until = dispatchq_now() + interval '1 minute'
              WHERE id = 'D'")
        .await;
    let before = states(&stage).await;
    let plan = plan_for_all(&stage, BindingVerb::Start, PlanMode::DryRun).await;
    assert_eq!(fates(&stage, &plan).await, ["A PENDING", "B UNCHANGED", "C REFUSED", "D REFUSED"]);
    assert_eq!((plan.state, plan.counts.left(), plan.counts.refused), (PlanState::Planned, 1, 2));
    let refusals = store::count_refusals(&stage.t.app.core.db, plan.id).await.unwrap();
    let words: Vec<_> = refusals.iter().map(|row| (row.refusal.as_str(), row.count)).collect();
    assert_eq!(words, [("BINDING_PAUSED", 1), ("BINDING_STOPPING", 1)]);
    assert!(items(&stage, &plan).await.iter().all(|item| item.done_at.is_none()));

    assert!(stage.t.timers().await.keys().all(|job| !job.starts_with("plan:")), "no job of a plan that does not run");
    stage.t.advance(secs(10)).await;
    assert_eq!(states(&stage).await, before, "nothing is done");
    let only_there = BindingFilter { state: Some(BindingState::Running), ..BindingFilter::default() };
    let draft = binding_plans::draft_plan(&stage.t.app.core, &only_there, BindingVerb::Stop, None, &by("cli:me")).await;
    assert_eq!(draft.unwrap().items, [PlanItem::pending("B")]);
}

#[tokio::test]
async fn plan_changes_its_bindings_once_at_pace() {
    let stage = stage_with(&["A", "B", "C"]).await;
    let plan = plan_for_all(&stage, BindingVerb::Start, PlanMode::DryRun).await;
    create_idle(&stage, "D").await;
    assert_eq!(run(&stage, &plan).await.unwrap().state, PlanState::Running);
    let again = run(&stage, &plan).await.unwrap_err();
    assert!(matches!(again, PlanError::Conflict(PlanConflict::Running { .. })), "{again}");
    assert!(again.to_string().contains("operator:runner: a plan runs once"), "{again}");

    stage.t.run_due().await;
    assert_eq!(fates(&stage, &plan).await, ["A CHANGED", "B CHANGED", "C PENDING"]);
    stage.t.run_for(millis(999)).await;
    assert_eq!(reload(&stage, &plan).await.counts.changed, 2, "not before a second has passed");
    stage.t.run_for(secs(1)).await;
    let done = reload(&stage, &plan).await;
    assert_eq!((done.state, done.counts.changed, done.counts.left()), (PlanState::Done, 3, 0));
    assert_eq!(states(&stage).await, ["A RUNNING", "B RUNNING", "C RUNNING", "D STOPPED"]);
    let again = run(&stage, &plan).await.unwrap_err();
    assert!(matches!(again, PlanError::Conflict(PlanConflict::Done { .. })), "{again}");

    let history =
        "SELECT binding_id || ' ' || actor || ' ' || detail FROM binding_events WHERE kind = 'started' ORDER BY 1";
    let note = format!("operator:runner plan {}: the books are closed", plan.id);
    assert_eq!(stage.t.texts(history).await, ["A", "B", "C"].map(|id| format!("{id} {note}")));
    let audited = "SELECT created_by || ' ' || run_by || ' ' || changed FROM audit_plans";
    assert_eq!(stage.t.texts(audited).await, ["operator:maker operator:runner 3"]);
}

#[tokio::test]
async fn plan_with_a_lost_job_finishes_once() {
    let stage = stage_with(&["A", "B", "C", "D", "E"]).await;
    let plan = plan_for_all(&stage, BindingVerb::Start, PlanMode::Run).await;
    stage.t.run_due().await;
    assert_eq!(reload(&stage, &plan).await.counts.changed, 2);
    let due = stage.t.app.core.store.keys().due_set(jobs::queues::PERIODIC);
    assert_eq!(stage.t.redis::<i64>(&["ZREM", &due, &job_of(&plan)]).await, 1);
    let missing = repair::list_missing(&stage.t.app.core).await.unwrap();
    assert_eq!(missing.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), [job_of(&plan)], "the checker sees it");
    stage.t.run_for(secs(10)).await;
    assert_eq!(reload(&stage, &plan).await.counts.changed, 2, "nothing else performs it");

    let report =
        reconciler::reconcile_once(&stage.t.app.maintenance).await.unwrap().expect("no other process reconciles");
    assert_eq!(report.inserted, 1);
    stage.t.run_for(secs(5)).await;
    let done = reload(&stage, &plan).await;
    assert_eq!((done.state, done.counts.changed, done.counts.unchanged), (PlanState::Done, 5, 0));
    assert_eq!(stage.t.count("SELECT count(*) FROM binding_events WHERE kind = 'started'").await, 5);
    assert_eq!(repair::list_missing(&stage.t.app.core).await.unwrap(), []);
}

#[tokio::test]
async fn a_plan_outlives_a_flush_of_redis() {
    let stage = stage_with(&["A", "B", "C"]).await;
    let plan = plan_for_all(&stage, BindingVerb::Start, PlanMode::Run).await;
    stage.t.redis::<()>(&["FLUSHALL"]).await;
    reconciler::reconcile_once(&stage.t.app.maintenance).await.unwrap().expect("no other process reconciles");
    stage.t.run_for(secs(3)).await;
    assert_eq!(reload(&stage, &plan).await.state, PlanState::Done);
}

#[tokio::test]
async fn a_worker_that_dies_with_a_batch_costs_nothing() {
    let stage = stage_with(&["A", "B", "C"]).await;
    let plan = plan_for_all(&stage, BindingVerb::Start, PlanMode::Run).await;
    let leased = stage.t.take().await;
    let of_plan = leased.iter().find(|leased| leased.delivery.id.as_str() == job_of(&plan)).expect("it is due");
    stage.t.perform(of_plan).await;
    // The worker dies before it settles the job, and the lease expires.
    stage.t.outlive_leases().await;
    stage.t.run_for(secs(5)).await;
    let done = reload(&stage, &plan).await;
    assert_eq!((done.state, done.counts.changed), (PlanState::Done, 3));
    assert_eq!(stage.t.count("SELECT count(*) FROM binding_events WHERE kind = 'started'").await, 3);
}

#[tokio::test]
async fn unrecorded_item_differs_from_one_changed_elsewhere() {
    let stage = stage_with(&["A", "B", "C"]).await;
    let plan = plan_for_all(&stage, BindingVerb::Start, PlanMode::Run).await;
    // A process that dies between the change and its record leaves the items in this state.
    let (start, note) = (BindingCommand::Start, plan.history_note());
    for id in ["A", "C"] {
        commands::command_with_note(&stage.t.app.bindings, &binding_id(id), &start, &plan.runner(), Some(&note))
            .await
            .unwrap();
    }
    stage.command("B", BindingCommand::Start).await;
    stage.stop("C").await;
    stage.t.run_for(secs(2)).await;
    assert_eq!(fates(&stage, &plan).await, ["A CHANGED", "B UNCHANGED", "C CHANGED"]);
    assert_eq!(reload(&stage, &plan).await.state, PlanState::Done);
    assert_eq!(stage.t.count("SELECT count(*) FROM binding_events WHERE kind = 'started'").await, 3);
    assert_eq!(states(&stage).await, ["A RUNNING", "B RUNNING", "C STOPPED"], "what a person undid stays undone");
}

#[tokio::test]
async fn refused_item_does_not_stop_the_others() {
    let stage = stage_with(&["A", "B", "C"]).await;
    let plan = plan_for_all(&stage, BindingVerb::Start, PlanMode::DryRun).await;
    stage.command("A", BindingCommand::Delete).await;
    stage.command("B", BindingCommand::Start).await;
    stage.command("B", BindingCommand::Pause).await;
    run(&stage, &plan).await.unwrap();
    stage.t.run_for(secs(3)).await;
    assert_eq!(fates(&stage, &plan).await, ["A REFUSED", "B REFUSED", "C CHANGED"]);
    let refusals = store::count_refusals(&stage.t.app.core.db, plan.id).await.unwrap();
    let words: Vec<_> = refusals.iter().map(|row| row.refusal.as_str()).collect();
    assert_eq!(words, ["BINDING_DELETED", "BINDING_PAUSED"]);
}

#[tokio::test]
async fn a_cancelled_plan_leaves_the_rest() {
    let stage = stage_with(&["A", "B", "C", "D"]).await;
    let plan = plan_for_all(&stage, BindingVerb::Start, PlanMode::Run).await;
    stage.t.run_due().await;
    let boss = by("admin:boss");
    let cancelled = control::cancel_plan(&stage.t.app.core, plan.id, &boss).await.unwrap();
    assert_eq!((cancelled.plan().state, cancelled.plan().counts.left()), (PlanState::Cancelled, 2));
    stage.t.run_for(secs(10)).await;
    assert_eq!(states(&stage).await, ["A RUNNING", "B RUNNING", "C STOPPED", "D STOPPED"]);
    let again = control::cancel_plan(&stage.t.app.core, plan.id, &boss).await.unwrap();
    assert!(matches!(again, control::ChangedPlan::No(_, "CANCELLED already")), "{again:?}");
    let run_again = run(&stage, &plan).await.unwrap_err();
    assert!(run_again.to_string().contains("cancelled by admin:boss"), "{run_again}");
    assert_eq!(repair::list_missing(&stage.t.app.core).await.unwrap(), []);
}

#[tokio::test]
async fn expired_plan_is_refused_and_removed() {
    let stage = stage_with(&["A", "B"]).await;
    let stale = plan_for_all(&stage, BindingVerb::Start, PlanMode::DryRun).await;
    stage.t.advance(secs(24 * 3600 + 1)).await;
    let refused = run(&stage, &stale).await.unwrap_err();
    assert!(matches!(refused, PlanError::Conflict(PlanConflict::Expired)), "{refused}");
    let running = plan_for_all(&stage, BindingVerb::Start, PlanMode::Run).await;
    stage.t.advance(secs(31 * 24 * 3600)).await;
    cleanup::run(&stage.t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap();
    let left = "SELECT id::text || ' ' || (SELECT count(*) FROM plan_items i WHERE i.plan_id = p.id) FROM plans p";
    assert_eq!(stage.t.texts(left).await, [format!("{} 2", running.id)]);
    assert_eq!(stage.t.count("SELECT count(*) FROM plan_items").await, 2);
}

#[tokio::test]
async fn a_plan_that_is_stored_twice_is_one() {
    let stage = stage_with(&["A"]).await;
    let (app, author, id) = (&stage.t.app, by("operator:maker"), PlanId::from_uuid(Uuid::now_v7()));
    let draft = async || {
        binding_plans::draft_plan(&app.core, &BindingFilter::default(), BindingVerb::Start, None, &author)
            .await
            .unwrap()
    };
    let first = create::store_draft(&app.core, id, &draft().await, PlanMode::DryRun, &author).await.unwrap();
    create_idle(&stage, "B").await;
    let second = create::store_draft(&app.core, id, &draft().await, PlanMode::DryRun, &author).await.unwrap();
    assert_eq!((second.counts.total, &second), (1, &first));
    let nowhere = BindingFilter { server_id: Some("S9".parse().unwrap()), ..BindingFilter::default() };
    let refused = binding_plans::draft_plan(&app.core, &nowhere, BindingVerb::Start, None, &author).await.unwrap_err();
    assert!(matches!(refused, PlanError::NoServer(_)), "{refused}");
}
