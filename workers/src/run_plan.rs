//! Requirement: docs/requirements/orchestration.md.
//!
//! `plan:{plan}`: runs the next items of a plan.

use jobs::RunPlan;
use model::{ids::PlanId, plan::derive_plan_job};

use desk::{
    capability::Desk,
    plans::{
        error::PlanRunError,
        run_plan::{PlanStep, run_batch},
    },
};
use foundation::db::{database_failed, database_pause};
use queue::Outcome;

pub async fn perform_plan(desk: Desk, job: RunPlan) -> Outcome {
    match run_batch(&desk, PlanId::from_uuid(job.plan)).await {
        Ok(PlanStep::Over) => Outcome::done(),
        Ok(PlanStep::NotYet(delay)) => Outcome::Snooze { delay },
        Ok(PlanStep::Performed(after)) => {
            Outcome::then_enqueue(derive_plan_job(&after.plan, after.now).into_iter().collect())
        }
        Err(PlanRunError::Database(error)) => database_failed(&*desk.core.rng, &error),
        Err(PlanRunError::Binding(error)) => match error.database_error() {
            Some(error) => database_failed(&*desk.core.rng, error),
            None => database_pause(&*desk.core.rng),
        },
        Err(PlanRunError::Service(error)) => match error.database_error() {
            Some(error) => database_failed(&*desk.core.rng, error),
            None => {
                tracing::warn!(plan_id = %job.plan, %error, "A plan waits: a server does not answer.");
                database_pause(&*desk.core.rng)
            }
        },
        Err(error @ (PlanRunError::Unreadable(_) | PlanRunError::Panicked(_))) => Outcome::Retry(error.to_string()),
    }
}
