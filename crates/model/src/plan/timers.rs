//! The job of a plan, derived from its row.

use chrono::{DateTime, Utc};
use job_contract::NewJob;
use jobs::RunPlan;

use super::{Plan, PlanState};
use crate::{decide::timers::time_until, ids::PlanId};

/// Returns the job of a running plan; `None` for other plans.
pub fn derive_plan_job(plan: &Plan, now: DateTime<Utc>) -> Option<NewJob> {
    (plan.state == PlanState::Running).then(|| plan_job(plan.id, plan.next_at.unwrap_or(now), now))
}

/// Returns the job that performs the next items of a plan.
pub fn plan_job(id: PlanId, due: DateTime<Utc>, now: DateTime<Utc>) -> NewJob {
    NewJob::after(&RunPlan { plan: id.as_uuid() }, time_until(due, now))
}
