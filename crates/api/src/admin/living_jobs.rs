//! Jobs in Redis: `/api/v1/admin/jobs`.

use std::time::Duration;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
    http::StatusCode,
    response::Response,
};
use chrono::{DateTime, SecondsFormat, Utc};
use model::input::GivenTime;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema, openapi::Object};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    ActionRequest, JobPath, OPERATORS,
    examples::{example_job, example_jobs},
    find_queue,
};
use crate::{
    auth::ApiCaller,
    bindings::{page_size, word_schema},
    error::{ApiError, StaffError},
    idempotency::IdempotencyHeader,
    keyed_call::{KeyedCall, KeyedRequest},
    openapi::CallErrors,
    reason::StaffReason,
};
use app::App;
use desk::operator::job::{self, RescheduleTime, RescheduledJob};
use foundation::{error::ServiceError, staff_actions::ActionAuthor};
use queue::store::JobState;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_jobs))
        .routes(routes!(show_job))
        .routes(routes!(cancel_job))
        .routes(routes!(reschedule_job))
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
    /// Name of the queue.
    #[param(pattern = "^[a-z-]{1,64}$", example = "dispatch-queue")]
    queue: String,
    /// State of the jobs. Default: due.
    #[param(schema_with = state_schema)]
    state: Option<WantedState>,
    /// Number of jobs to skip.
    #[serde(default)]
    #[param(maximum = 100000)]
    offset: u32,
    /// Maximum number of jobs per page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

/// Maximum offset. Redis reads the skipped jobs, too.
const LARGEST_OFFSET: u32 = 100_000;

/// Lists the jobs of a queue in one state, earliest first.
///
/// Each of the `jobs` has id, `at_ms`, failed and lost runs, and error. `at_ms` is the time when the job is due, was
/// parked or died, or when its lease ends. `next_offset` is null on the last page.
#[utoipa::path(get, path = "/", tag = "admin", params(JobQuery), extensions(("x-roles" = json!(OPERATORS))),
    responses((status = 200, description = "success", body = Object, example = json!(example_jobs())), CallErrors))]
async fn list_jobs(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<JobQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    let Query(JobQuery { queue, state, offset, limit }) = wanted?;
    let (queue, limit) = (find_queue(&queue)?, page_size(limit)?);
    if offset > LARGEST_OFFSET {
        return Err(ApiError::invalid_parameter("offset", format!("offset must be at most {LARGEST_OFFSET}")));
    }
    let found =
        app.core.queue().list_jobs(queue, state.unwrap_or_default().into(), offset as usize, limit as usize).await;
    let jobs = found.map_err(ServiceError::from)?;
    let next_offset = (jobs.len() == limit as usize).then_some(offset + limit);
    Ok(Json(json!({ "jobs": jobs, "next_offset": next_offset })))
}

/// Returns the state and details of a job.
#[utoipa::path(get, path = "/{job_id}", tag = "admin", params(JobPath), extensions(("x-roles" = json!(OPERATORS))),
    responses((status = 200, description = "success", body = Object, example = json!(example_job())), CallErrors))]
async fn show_job(State(app): State<App>, caller: ApiCaller, JobPath(id): JobPath) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    let found = app.core.queue().find_job(&id, &jobs::queues::ALL).await.map_err(ServiceError::from)?;
    Ok(Json(json!(found.ok_or(StaffError::NoSuchJob)?)))
}

/// Removes a waiting job that no row needs.
#[utoipa::path(post, path = "/{job_id}/cancel", tag = "admin", params(JobPath, IdempotencyHeader),
    extensions(("x-roles" = json!(OPERATORS))),
    request_body(content = ActionRequest, example = json!({ "reason": "left behind by a test" })),
    responses(
        (status = 200, description = "success", body = Object,
         example = json!({ "id": "notify:ORD-1:7", "result": "CANCELLED" })),
        CallErrors,
    ))]
async fn cancel_job(call: KeyedCall<JobPath, ActionRequest>) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: JobPath(id), value: ActionRequest { reason } } = call;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&OPERATORS)?;
    let reason = reason.check(caller)?;
    let work = async |_| {
        let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
        job::cancel_recorded(&app.desk, &id, by).await?;
        Ok::<_, ApiError>((StatusCode::OK, json!({ "id": id.as_str(), "result": "CANCELLED" })))
    };
    request.run_once("cancel job", id.as_str().as_bytes(), work).await
}

/// New time for a job: either `in_sec` or `at`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RescheduleRequest {
    /// Seconds from now; 0 runs the job now.
    #[schema(maximum = 315360000)]
    in_sec: Option<u32>,
    /// Absolute time, by the clock of Postgres.
    #[schema(value_type = Option<DateTime<Utc>>)]
    at: Option<GivenTime>,
    /// Reason, kept in the record.
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
}

/// Maximum delay in seconds: ten years.
const LONGEST_DELAY_SEC: u32 = 315_360_000;

impl RescheduleRequest {
    fn time(&self) -> Result<RescheduleTime, ApiError> {
        match (self.in_sec, self.at) {
            (Some(delay), None) if delay > LONGEST_DELAY_SEC => {
                Err(ApiError::invalid_member("in_sec", format!("in_sec must be at most {LONGEST_DELAY_SEC}")))
            }
            (Some(delay), None) => Ok(RescheduleTime::In(Duration::from_secs(delay.into()))),
            (None, Some(at)) => Ok(RescheduleTime::At(at.time())),
            (Some(_), Some(_)) | (None, None) => {
                Err(ApiError::invalid_member("in_sec", "give exactly one of in_sec and at"))
            }
        }
    }
}

/// Moves a waiting job to another time, or runs it now.
///
/// The job's row decides: a job that runs before its row's time only waits again. `not_before` is that time.
#[utoipa::path(post, path = "/{job_id}/reschedule", tag = "admin", params(JobPath, IdempotencyHeader),
    extensions(("x-roles" = json!(OPERATORS))),
    request_body(content = RescheduleRequest, example = json!({ "in_sec": 0, "reason": "the receiver is back" })),
    responses(
        (status = 200, description = "success", body = Object,
         example = json!({ "id": "notify:ORD-1:7", "result": "MOVED", "due": "2026-01-09T08:00:00.000Z", "not_before": null })),
        CallErrors,
    ))]
async fn reschedule_job(call: KeyedCall<JobPath, RescheduleRequest>) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: JobPath(id), value } = call;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&OPERATORS)?;
    let when = value.time()?;
    let reason = value.reason.check(caller)?;
    let work = async |_| {
        let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
        let RescheduledJob { due, not_before } = job::reschedule_recorded(&app.desk, &id, when, by).await?;
        let time = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Millis, true);
        let moved =
            json!({ "id": id.as_str(), "result": "MOVED", "due": time(due), "not_before": not_before.map(time) });
        Ok::<_, ApiError>((StatusCode::OK, moved))
    };
    request.run_once("reschedule job", id.as_str().as_bytes(), work).await
}
