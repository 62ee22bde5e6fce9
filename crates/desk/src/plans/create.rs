//! Stores a plan with its exact ids, and starts it if requested.

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

/// Action, filter and items of a plan that is not stored yet.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanDraft {
    pub kind: PlanKind,
    /// Action in the JSON form of the plan's kind.
    pub action: Value,
    /// Filter in the JSON form of the plan's kind.
    pub filter: Value,
    pub reason: Option<String>,
    pub items: Vec<PlanItem>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanMode {
    /// The plan is only stored and shown. It can be started by its id.
    DryRun,
    /// The plan starts at once.
    Run,
}

/// Stores a plan under this id. If the request is a repetition, the stored plan is returned in its present state.
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
            tracing::info!(plan_id = %id, kind = %plan.kind, action = %plan.action, items = plan.counts.total, state = %plan.state, actor = %author, "A plan was created.");
            enqueue_plan(core, &plan, now).await;
            Ok(plan)
        }
        Ok(false) => find_plan(core, id).await,
        // The commit may have succeeded.
        Err(error) if classify_error(&error) == DatabaseFailure::OutcomeUnknown => {
            let stored = store::load_plan(&core.db, id).await?;
            stored.map_or_else(|| Err(error.into()), |stored| Ok(stored.plan))
        }
        Err(error) => Err(error.into()),
    }
}

pub async fn find_plan(core: &Core, id: PlanId) -> Result<Plan, PlanError> {
    let loaded = store::load_plan(&core.db, id).await?;
    loaded.map(|loaded| loaded.plan).ok_or(PlanError::NotFound(id))
}

/// Enqueues the job of a running plan. A failure is logged: the row is committed, and the reconciler enqueues its job.
pub(super) async fn enqueue_plan(core: &Core, plan: &Plan, now: DateTime<Utc>) {
    let Some(job) = derive_plan_job(plan, now) else { return };
    let app_of_task = core.clone();
    let enqueue = async move {
        if let Err(error) = app_of_task.queue().enqueue(std::slice::from_ref(&job)).await {
            tracing::warn!(job.id = %job.id, %error, "The job of a plan could not be enqueued; the reconciler enqueues it.");
        }
    };
    let enqueued = tokio::spawn(enqueue.in_current_span());
    let _ = tokio::time::timeout(core.patience, enqueued).await;
}
