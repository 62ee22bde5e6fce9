//! Starts or cancels a plan by its id.

use chrono::{DateTime, Utc};
use model::{
    actor::Actor,
    ids::PlanId,
    plan::{Plan, PlanDecision, decide_cancel, decide_run},
};

use super::{
    create::enqueue_plan,
    error::PlanError,
    store::{self, DecidedPlan},
};
use foundation::core::Core;

/// Result of a request about a plan.
#[derive(Debug, Clone, PartialEq)]
pub enum ChangedPlan {
    /// The change was written; contains the new row.
    Yes(Box<Plan>),
    /// The plan already was in this state; the text says which.
    No(Box<Plan>, &'static str),
}

impl ChangedPlan {
    pub fn plan(&self) -> &Plan {
        match self {
            Self::Yes(plan) | Self::No(plan, _) => plan,
        }
    }
}

/// Starts a plan. A plan runs only once; a second request is refused.
pub async fn run_plan(core: &Core, id: PlanId, actor: &Actor) -> Result<ChangedPlan, PlanError> {
    change_plan(core, id, actor, |plan, now| decide_run(plan, actor, now)).await
}

/// Cancels a plan. Running items finish; no further item starts.
pub async fn cancel_plan(core: &Core, id: PlanId, actor: &Actor) -> Result<ChangedPlan, PlanError> {
    change_plan(core, id, actor, |plan, now| decide_cancel(plan, actor, now)).await
}

async fn change_plan(
    core: &Core,
    id: PlanId,
    actor: &Actor,
    decide: impl FnOnce(&Plan, DateTime<Utc>) -> PlanDecision,
) -> Result<ChangedPlan, PlanError> {
    let decided = store::change_plan(&core.db, id, decide).await?;
    let DecidedPlan { before, decision, now } = decided.ok_or(PlanError::NotFound(id))?;
    match decision {
        PlanDecision::Write(after) => {
            tracing::info!(plan_id = %id, kind = %after.kind, action = %after.action, from = %before.state, to = %after.state, left = after.counts.left(), %actor, "A plan has changed its state.");
            enqueue_plan(core, &after, now).await;
            Ok(ChangedPlan::Yes(after))
        }
        PlanDecision::NoOp(how) => Ok(ChangedPlan::No(Box::new(before), how)),
        PlanDecision::Conflict(conflict) => Err(conflict.into()),
    }
}
