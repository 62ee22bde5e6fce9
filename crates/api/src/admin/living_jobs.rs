//! Jobs in Redis: `/api/v1/admin/jobs`.

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use dispatch::{app::App, error::ServiceError};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, openapi::Object};
use utoipa_axum::{router::OpenApiRouter, routes};
use workers::store::JobState;

use super::{
    JobPath, OPERATORS,
    examples::{example_job, example_jobs},
    find_queue,
};
use crate::{
    auth::ApiCaller,
    bindings::{page_size, word_schema},
    error::{ApiError, StaffError},
    openapi::CallErrors,
};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(list_jobs)).routes(routes!(show_job))
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WantedState {
    #[default]
    Due,
    Suspect,
    Parked,
    Leased,
    Dead,
}

impl From<WantedState> for JobState {
    fn from(state: WantedState) -> Self {
        match state {
            WantedState::Due => Self::Due,
            WantedState::Suspect => Self::Suspect,
            WantedState::Parked => Self::Parked,
            WantedState::Leased => Self::Leased,
            WantedState::Dead => Self::Dead,
        }
    }
}

fn state_schema() -> Object {
    word_schema(["due", "suspect", "parked", "leased", "dead"])
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct JobQuery {
    /// the queue's name
    #[param(pattern = "^[a-z-]{1,64}$", example = "dispatch-queue")]
    queue: String,
    /// where the jobs are; due ones if it is left out
    #[param(schema_with = state_schema)]
    state: Option<WantedState>,
    /// so many are left out
    #[serde(default)]
    #[param(maximum = 100000)]
    offset: u32,
    /// jobs of one page
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

/// Most jobs that may be left out: Redis reads past them.
const LARGEST_OFFSET: u32 = 100_000;

/// Lists the jobs of a queue in one state, the earliest first.
///
/// `jobs`: id, `at_ms` (due, parked since, end of the lease, or death), failed and lost runs, error. `next_offset` is null on the last page.
#[utoipa::path(get, path = "/", tag = "admin", params(JobQuery), extensions(("x-roles" = json!(OPERATORS))),
    responses((status = 200, description = "done", body = Object, example = json!(example_jobs())), CallErrors))]
async fn list_jobs(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<JobQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    let Query(JobQuery { queue, state, offset, limit }) = wanted?;
    let (queue, limit) = (find_queue(&queue)?, page_size(limit)?);
    if offset > LARGEST_OFFSET {
        return Err(ApiError::Invalid(format!("offset must be at most {LARGEST_OFFSET}")));
    }
    let found = app.queue().list_jobs(queue, state.unwrap_or_default().into(), offset as usize, limit as usize).await;
    let jobs = found.map_err(ServiceError::from)?;
    let next_offset = (jobs.len() == limit as usize).then_some(offset + limit);
    Ok(Json(json!({ "jobs": jobs, "next_offset": next_offset })))
}

/// Returns where a job is, and all that is known of it.
#[utoipa::path(get, path = "/{job_id}", tag = "admin", params(JobPath), extensions(("x-roles" = json!(OPERATORS))),
    responses((status = 200, description = "done", body = Object, example = json!(example_job())), CallErrors))]
async fn show_job(State(app): State<App>, caller: ApiCaller, JobPath(id): JobPath) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    let found = app.queue().find_job(&id, &jobs::queues::ALL).await.map_err(ServiceError::from)?;
    Ok(Json(json!(found.ok_or(StaffError::NoSuchJob)?)))
}
