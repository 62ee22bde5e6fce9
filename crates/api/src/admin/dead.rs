//! Dead jobs: `/api/v1/admin/dead`. A plan (`POST .../actions`) decides on many of them at once.

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
    http::StatusCode,
    response::Response,
};
use chrono::{DateTime, SecondsFormat, Utc};
use foundation::core::Core;
use foundation::dead_letter_rows::{self, DeadLetterRow};
use queue::JobId;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    ActionRequest, JobPath, OPERATORS,
    examples::{example_dead_job, example_dead_jobs},
};
use crate::{
    auth::ApiCaller,
    bindings::page_size,
    error::{ApiError, StaffError},
    idempotency::{IdempotencyHeader, WorkContext},
    keyed_call::{KeyedCall, KeyedRequest},
    openapi::CallErrors,
    orders::bounded_parameter,
};
use app::App;
use desk::{
    dead_letters::{
        decide::{self, DecisionAuthor, DecisionOutcome},
        explain,
        walk::{self, DeadListPlace},
    },
    plans::dead_plans::DeadJobFilter,
};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_dead_jobs))
        .routes(routes!(show_dead_job))
        .routes(routes!(requeue_dead_job))
        .routes(routes!(discard_dead_job))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DeadJobQuery {
    /// Only jobs of this queue.
    #[param(schema_with = super::queue_schema)]
    queue: Option<String>,
    /// Only jobs whose error contains this text.
    #[param(max_length = 500)]
    error: Option<String>,
    /// Only jobs that died at least this many seconds ago.
    #[param(minimum = 0, maximum = 2147483647)]
    older_than_sec: Option<u32>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Maximum number of jobs per page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

/// Lists dead jobs, queue by queue, the longest dead first within each queue.
///
/// Each of the `jobs` has id, queue, error, failed and lost runs, due time, time of death, and payload. `next_cursor`
/// is null on the last page.
#[utoipa::path(get, path = "/", tag = "admin", params(DeadJobQuery), extensions(("x-roles" = json!(OPERATORS))),
    responses((status = 200, description = "success", body = Object, example = json!(example_dead_jobs())), CallErrors))]
async fn list_dead_jobs(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<DeadJobQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    let Query(DeadJobQuery { queue, error, older_than_sec, cursor, limit }) = wanted?;
    let limit = page_size(limit)?;
    if older_than_sec.is_some_and(|secs| i32::try_from(secs).is_err()) {
        return Err(ApiError::invalid_parameter("older_than_sec", format!("older_than_sec must be 0 to {}", i32::MAX)));
    }
    let after = cursor.as_deref().map(str::parse::<DeadListPlace>).transpose();
    let after = after.map_err(|error| ApiError::invalid_parameter("cursor", error.to_string()))?;
    let filter = DeadJobFilter { queue, error: bounded_parameter("error", error)?, older_than_sec };
    let page = walk::list_page(&app.core, &select(&filter)?, after, limit as usize).await?;
    let next_cursor = page.next.as_ref().map(ToString::to_string);
    Ok(Json(json!({ "jobs": page.entries, "next_cursor": next_cursor })))
}

/// Returns the selection of dead letters that match a filter.
pub(crate) fn select(filter: &DeadJobFilter) -> Result<walk::DeadSelection, ApiError> {
    let named = || filter.queue.clone().unwrap_or_default();
    filter.to_selection().ok_or_else(|| StaffError::NoSuchQueue(named().chars().take(64).collect()).into())
}

/// Explains a dead job: the cause of death, its order or message, earlier decisions, and the possible actions.
///
/// `refusal`: why the job cannot be requeued, as the `why` of the refusal. Null if it can.
#[utoipa::path(get, path = "/{job_id}", tag = "admin", params(JobPath), extensions(("x-roles" = json!(OPERATORS))),
    responses((status = 200, description = "success", body = Object, example = json!(example_dead_job())), CallErrors))]
async fn show_dead_job(
    State(app): State<App>,
    caller: ApiCaller,
    JobPath(id): JobPath,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    match explain::explain_job(&app.core, &id).await? {
        Some(explained) => Ok(Json(json!(explained))),
        None => Err(not_dead(&app.core, &id).await?),
    }
}

/// Returns the error for a job that is not dead. If the job was dead before, the message reports the decision on it.
async fn not_dead(core: &Core, id: &JobId) -> Result<ApiError, ApiError> {
    let deaths = dead_letter_rows::list_deaths(&core.db, id.as_str()).await?;
    let story = deaths.first().map(|last| format!("no longer dead: it {}", tell_story(last)));
    let story = story.unwrap_or_else(|| "not dead".to_owned());
    Ok(StaffError::NoDeadJob { id: id.to_string(), story }.into())
}

fn tell_story(death: &DeadLetterRow) -> String {
    let time = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
    let mut story = format!("died at {} ({})", time(death.died_at), death.error);
    if let (Some(how), Some(by), Some(at)) = (death.resolved_how, &death.resolved_by, death.resolved_at) {
        story += &format!(", {} by {by} at {}", how.as_str(), time(at));
        if let Some(why) = &death.resolved_why {
            story += &format!(": {why}");
        }
    }
    story
}

/// Returns the answer to a decision.
fn answer_decision(
    outcome: DecisionOutcome,
    resumed: bool,
    id: &JobPath,
    result: &str,
) -> Result<(StatusCode, Value), ApiError> {
    match outcome {
        DecisionOutcome::Done => {}
        // An earlier request with this Idempotency-Key made the decision, and its answer was lost.
        DecisionOutcome::NotDead if resumed => {}
        DecisionOutcome::NotDead => return Err(StaffError::NotDead.into()),
        DecisionOutcome::Refused(refusal) => return Err(StaffError::StaysDead(refusal).into()),
    }
    Ok((StatusCode::OK, json!({ "id": id.0.as_str(), "result": result })))
}

/// Requeues a dead job, if its order or message still needs it.
///
/// An order that is under review because the job died continues.
#[utoipa::path(post, path = "/{job_id}/requeue", tag = "admin", params(JobPath, IdempotencyHeader),
    extensions(("x-roles" = json!(OPERATORS))),
    request_body(content = ActionRequest, example = json!({ "reason": "the map service is back" })),
    responses(
        (status = 200, description = "success", body = Object,
         example = json!({ "id": "dispatch:ORD-1:1", "result": "REQUEUED" })),
        CallErrors,
    ))]
async fn requeue_dead_job(call: KeyedCall<JobPath, ActionRequest>) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: id, value: ActionRequest { reason } } = call;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&OPERATORS)?;
    let by = DecisionAuthor { who: caller.actor(), why: reason.check(caller)? };
    let work = async |work: WorkContext| {
        let outcome = decide::requeue_job(&app.desk, &id.0, &by).await?;
        answer_decision(outcome, work.resumed, &id, "REQUEUED")
    };
    request.run_once("requeue dead job", id.0.as_str().as_bytes(), work).await
}

/// Discards a dead job.
///
/// If its order still needs other jobs, they are enqueued again. An order under review stays under review until staff
/// decide.
#[utoipa::path(post, path = "/{job_id}/discard", tag = "admin", params(JobPath, IdempotencyHeader),
    extensions(("x-roles" = json!(OPERATORS))),
    request_body(content = ActionRequest, example = json!({ "reason": "its order was cancelled" })),
    responses(
        (status = 200, description = "success", body = Object,
         example = json!({ "id": "dispatch:ORD-1:1", "result": "DISCARDED" })),
        CallErrors,
    ))]
async fn discard_dead_job(call: KeyedCall<JobPath, ActionRequest>) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: id, value: ActionRequest { reason } } = call;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&OPERATORS)?;
    let by = DecisionAuthor { who: caller.actor(), why: reason.check(caller)? };
    let work = async |work: WorkContext| {
        let outcome = decide::discard_job(&app.core, &id.0, &by).await?;
        answer_decision(outcome, work.resumed, &id, "DISCARDED")
    };
    request.run_once("discard dead job", id.0.as_str().as_bytes(), work).await
}
