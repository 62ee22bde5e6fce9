//! Requirement: docs/requirements/job-id-retrieval.md.
//!
//! `tick:{schedule}:{slot}`: runs a schedule once.
//!
//! A run is claimed and finished in `schedule_runs`. A second delivery of a finished run does nothing. If a run was
//! claimed but not finished, its process has died and the next delivery repeats the run. Every task may be repeated.

use chrono::DateTime;
use jobs::PeriodicTick;
use serde::Serialize;
use serde_json::Value;

use desk::tick_schedule::next_job;
use foundation::{
    db::{self, Pool},
    error::ServiceError,
};
use maintenance::{
    capability::Maintenance,
    periodic::{
        cleanup::{self, CleanupMode},
        statistics, supply,
    },
    proof::slice,
};
use queue::{NewJob, Outcome};
use settings::ScheduledTask;

pub async fn perform_tick(maintenance: Maintenance, job: PeriodicTick) -> Outcome {
    let Some(task) = ScheduledTask::ALL.into_iter().find(|task| task.name() == job.schedule) else {
        tracing::info!(schedule = job.schedule, "A schedule no longer exists and is skipped.");
        return Outcome::done();
    };
    match run_task(&maintenance, task, &job).await {
        Ok(then) => Outcome::then_enqueue(then),
        Err(error) => match error.database_error() {
            Some(database) => db::database_failed(&*maintenance.core.rng, database),
            None => Outcome::Retry(error.to_string()),
        },
    }
}

async fn run_task(
    maintenance: &Maintenance,
    task: ScheduledTask,
    job: &PeriodicTick,
) -> Result<Vec<NewJob>, ServiceError> {
    match task {
        ScheduledTask::Cleanup => run_once(maintenance, job, cleanup::run(maintenance, CleanupMode::Remove)).await?,
        ScheduledTask::Statistics => run_once(maintenance, job, statistics::run(maintenance)).await?,
        ScheduledTask::Supply => run_once(maintenance, job, supply::run(maintenance, job.slot)).await?,
        // The proof stores its own place. A row for each of its runs would fill most of the table of runs.
        ScheduledTask::Proof => {
            slice::run(maintenance).await?;
        }
    }
    let now = db::database_now(&maintenance.core.db).await?;
    let next = maintenance.config.schedules.get(&task).map(|schedule| next_job(schedule, task, now)).transpose();
    let next = next.map_err(|error| ServiceError::Unusable(error.to_string()))?;
    Ok(next.into_iter().collect())
}

/// Does the work and stores its result, unless the run is already finished.
async fn run_once<T: Serialize>(
    maintenance: &Maintenance,
    job: &PeriodicTick,
    work: impl Future<Output = Result<T, ServiceError>>,
) -> Result<(), ServiceError> {
    if claim_run(&maintenance.core.db, job).await? {
        let result = serde_json::to_value(work.await?);
        let result = result.map_err(|error| ServiceError::Incomplete(error.to_string()))?;
        record_result(&maintenance.core.db, job, result).await?;
    }
    Ok(())
}

/// Claims the run. Returns `false` if it is already finished.
async fn claim_run(db: &Pool, job: &PeriodicTick) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "-- claim schedule run
         INSERT INTO schedule_runs AS r (name, slot) VALUES ($1, $2)
         ON CONFLICT (name, slot) DO UPDATE SET started_at = dispatchq_now() WHERE r.finished_at IS NULL
         RETURNING true",
    )
    .bind(&job.schedule)
    .bind(DateTime::from_timestamp(job.slot, 0))
    .fetch_optional(db)
    .await
    .map(|claimed: Option<bool>| claimed.is_some())
}

async fn record_result(db: &Pool, job: &PeriodicTick, result: Value) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- finish schedule run
         UPDATE schedule_runs SET finished_at = dispatchq_now(), result = $3 WHERE name = $1 AND slot = $2",
    )
    .bind(&job.schedule)
    .bind(DateTime::from_timestamp(job.slot, 0))
    .bind(result)
    .execute(db)
    .await?;
    Ok(())
}
