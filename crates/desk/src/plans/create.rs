//! A plan is stored with its exact ids, and started if that is wanted.

use chrono::{DateTime, Utc};
use model::{
    actor::Actor,
    ids::PlanId,
    plan::{Plan, PlanCounts, PlanDecision, PlanItem, PlanKind, decide_run, derive_plan_job},
};
use serde_json::Value;
use tracing::Instrument;

use super::{error::PlanError, store};
use foundation::{
    core::Core,
    db::{self, DatabaseFailure, classify_error},
};

/// What is to be done to which ids, not stored yet.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanDraft {
    pub kind: PlanKind,
    /// In the form of its kind.
    pub action: Value,
    /// In the form of its kind.
    pub filter: Value,
    pub reason: Option<String>,
    pub items: Vec<PlanItem>,
}

/// What follows when a plan is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanMode {
    /// Nothing: it is shown, and run by its id.
    DryRun,
    /// It runs.
    Run,
}

/// Stores a plan under this id. One that is stored already is returned as it is by now: the request came before.
pub async fn store_draft(
    core: &Core,
    id: PlanId,
    draft: &PlanDraft,
    mode: PlanMode,
    author: &Actor,
) -> Result<Plan, PlanError> {
    let now = db::database_now(&core.db).await?;
    let about = (draft.action.clone(), draft.filter.clone());
    let counts = PlanCounts::from_items(&draft.items);
    let planned =
        Plan { reason: draft.reason.clone(), ..Plan::new_planned(id, draft.kind, about, counts, author, now) };
    let plan = match mode {
        PlanMode::DryRun => planned,
        PlanMode::Run => match decide_run(&planned, author, now) {
            PlanDecision::Write(started) => *started,
            PlanDecision::NoOp(_) => planned,
            PlanDecision::Conflict(conflict) => return Err(conflict.into()),
        },
    };
    match store::insert_plan(&core.db, &plan, &draft.items).await {
        Ok(true) => {
            tracing::info!(plan_id = %id, kind = %plan.kind, action = %plan.action, items = plan.counts.total, state = %plan.state, actor = %author, "A plan was made.");
            enqueue_plan(core, &plan, now).await;
            Ok(plan)
        }
        Ok(false) => find_plan(core, id).await,
        // The commit may have been carried out all the same.
        Err(error) if classify_error(&error) == DatabaseFailure::OutcomeUnknown => {
            let stored = store::load_plan(&core.db, id).await?;
            stored.map_or_else(|| Err(error.into()), |stored| Ok(stored.plan))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the plan of this id.
pub async fn find_plan(core: &Core, id: PlanId) -> Result<Plan, PlanError> {
    let loaded = store::load_plan(&core.db, id).await?;
    loaded.map(|loaded| loaded.plan).ok_or(PlanError::NotFound(id))
}

/// Enqueues the job of a plan that runs. A failure is logged: the row is committed, and the reconciler puts its job in.
pub(super) async fn enqueue_plan(core: &Core, plan: &Plan, now: DateTime<Utc>) {
    let Some(job) = derive_plan_job(plan, now) else { return };
    let app_of_task = core.clone();
    let enqueue = async move {
        if let Err(error) = app_of_task.queue().enqueue(std::slice::from_ref(&job)).await {
            tracing::warn!(job.id = %job.id, %error, "The job of a plan could not be enqueued; it will be.");
        }
    };
    let enqueued = tokio::spawn(enqueue.in_current_span());
    let _ = tokio::time::timeout(core.patience, enqueued).await;
}
