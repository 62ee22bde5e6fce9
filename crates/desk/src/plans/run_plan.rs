//! `plan:{id}`: runs the next items of a plan.
//!
//! The job claims a batch by moving the row's `next_at`. A duplicate job then finds nothing due, and the rate limit
//! applies to all workers together. If the process dies, the job runs again after its lease and continues with the
//! unrecorded items. The job does not sleep: the next batch is the same job with a later due time.

use std::{sync::Arc, time::Duration};

use model::{
    decide::timers::time_until,
    ids::PlanId,
    plan::{Plan, PlanItem, PlanKind, PlanPace, PlanState},
};
use tokio::task::JoinSet;
use tracing::Instrument;

use super::{
    binding_plans, dead_plans,
    error::PlanRunError,
    store::{self, LoadedPlan, PlanTurn},
};
use crate::capability::Desk;
use foundation::crash;

/// Concurrent items. Their writes share statements and commits.
const IN_FLIGHT: usize = 32;

/// Result of one run of the job.
#[derive(Debug, Clone)]
pub enum PlanStep {
    /// The plan is not running.
    Over,
    /// The next items are due after this time.
    NotYet(Duration),
    /// Items were run; contains the present plan.
    Performed(Box<LoadedPlan>),
}

/// Runs the next items of a plan if they are due.
pub async fn run_batch(desk: &Desk, id: PlanId) -> Result<PlanStep, PlanRunError> {
    let pace = PlanPace { items_per_second: desk.config.plans.items_per_second };
    let (plan, subjects) = match store::claim_batch(&desk.core.db, id, pace).await? {
        PlanTurn::Over => return Ok(PlanStep::Over),
        PlanTurn::NotYet { due, now } => return Ok(PlanStep::NotYet(time_until(due, now))),
        PlanTurn::Ended(plan) => {
            announce_end(&plan);
            return Ok(PlanStep::Over);
        }
        PlanTurn::Perform { plan, subjects } => (Arc::new(*plan), subjects),
    };
    crash::reach_point("plan", "claimed");
    let (items, failed) = perform_items(desk, &plan, subjects).await;
    crash::reach_point("plan", "performed");
    let recorded = store::record_items(&desk.core.db, id, &items).await?;
    if let Some(error) = failed {
        return Err(error);
    }
    let Some(after) = recorded else { return Ok(PlanStep::Over) };
    announce_end(&after.plan);
    Ok(PlanStep::Performed(Box::new(after)))
}

/// Runs these items. Starts no further item after a failure. Returns the items that have ended.
async fn perform_items(desk: &Desk, plan: &Arc<Plan>, subjects: Vec<String>) -> (Vec<PlanItem>, Option<PlanRunError>) {
    let (mut items, mut failed) = (Vec::new(), None);
    let mut waiting = subjects.into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < IN_FLIGHT && failed.is_none() {
            let Some(subject) = waiting.next() else { break };
            let (desk, plan) = (desk.clone(), plan.clone());
            let performed = async move {
                match plan.kind {
                    PlanKind::Bindings => binding_plans::perform_item(&desk, &plan, &subject).await,
                    PlanKind::DeadJobs => dead_plans::perform_item(&desk, &plan, &subject).await,
                }
            };
            running.spawn(performed.in_current_span());
        }
        let Some(joined) = running.join_next().await else { return (items, failed) };
        match joined {
            Ok(Ok(ended)) => items.extend(ended),
            Ok(Err(error)) => failed = Some(error),
            Err(error) => failed = Some(PlanRunError::Panicked(error.to_string())),
        }
    }
}

fn announce_end(plan: &Plan) {
    if plan.state == PlanState::Done {
        let counts = plan.counts;
        tracing::info!(plan_id = %plan.id, kind = %plan.kind, action = %plan.action, total = counts.total, changed = counts.changed, unchanged = counts.unchanged, refused = counts.refused, "A plan is done.");
    }
}
