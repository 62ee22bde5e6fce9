//! Upkeep tasks that workers run on schedule, started by staff: `/api/v1/admin/reconciliation` and
//! `/api/v1/admin/cleanup`. The history check: `/api/v1/admin/history-check`.

use std::{ops::Range, str::FromStr, time::Duration};

use app::App;
use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use chrono::{DateTime, Datelike, Utc};
use desk::dead_letters::mirror;
use foundation::{
    error::ServiceError,
    staff_actions::{ActionAuthor, StaffAction, record_work},
    work_slice::WorkSlice,
};
use maintenance::{
    audit::{
        self, OTHER_CHECKS,
        binding_invariants::BINDING_INVARIANTS,
        invariants::{INVARIANTS, LEGAL_TRANSITIONS},
    },
    periodic::cleanup::{self, CleanupMode, CleanupPlace},
    recovery::{
        reconciler::{self, FullRun},
        repair,
    },
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{ADMINS, OPERATORS};
use crate::{
    auth::ApiCaller,
    body::JsonBody,
    error::{ApiError, StaffError},
    finish::SLICE,
    openapi::CallErrors,
    reason::optional_reason,
};

const MOST_CALLS: u32 = 100_000;
/// Years accepted in times from clients. Postgres and calendars support all of them.
pub(super) const YEARS: Range<i32> = 2000..3000;
/// Maximum time of the comparison of dead letters within a request.
const MIRROR_TIME: Duration = Duration::from_secs(20);
pub(crate) fn reconciliation_routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(list_missing_jobs, reconcile_jobs))
}

pub(crate) fn cleanup_routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(clean_up_rows))
}

pub(crate) fn history_routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(check_history))
}

/// Lists the timers that Postgres needs and Redis lacks.
///
/// Changes nothing. Each of the `missing` has id and queue. The reconciler in the workers restores missing timers
/// without a request.
#[utoipa::path(get, path = "/", tag = "admin", extensions(("x-roles" = json!(OPERATORS))),
    responses(
        (status = 200, description = "success", body = Object,
         example = json!({ "missing": [{ "id": "timeout:ORD-1:1", "queue": "dispatch-timeout-queue" }] })),
        CallErrors,
    ))]
async fn list_missing_jobs(State(app): State<App>, caller: ApiCaller) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    let missing = repair::list_missing(&app.core).await?;
    let missing: Vec<_> = missing.iter().map(|job| json!({ "id": job.id.as_str(), "queue": job.queue })).collect();
    Ok(Json(json!({ "missing": missing })))
}

/// A request for long work.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UpkeepRequest {
    /// Reason, kept in the record together with the actor.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    pub(super) reason: Option<String>,
    /// The `next_cursor` of the answer before.
    #[schema(max_length = 500)]
    pub(super) cursor: Option<String>,
}

/// Reads the `cursor` of a request for long work.
pub(super) fn read_cursor<T: FromStr>(cursor: Option<&str>) -> Result<Option<T>, ApiError> {
    let read = cursor.map(str::parse).transpose();
    read.map_err(|_| invalid_cursor())
}

/// Reads a `cursor` that is a time in microseconds.
pub(super) fn read_time_cursor(cursor: Option<&str>) -> Result<Option<DateTime<Utc>>, ApiError> {
    let Some(micros) = read_cursor::<i64>(cursor)? else { return Ok(None) };
    let time = DateTime::from_timestamp_micros(micros).filter(|time| YEARS.contains(&time.year()));
    time.map(Some).ok_or_else(invalid_cursor)
}

pub(super) fn invalid_cursor() -> ApiError {
    ApiError::invalid_member("cursor", "cursor must be the next_cursor of an answer")
}

/// Compares Redis with Postgres, and restores missing timers.
///
/// `report` has the numbers of compared rows, inserted and moved timers, and orders held for review and ended.
/// `warning` is the reason why dead letters could not be compared, or null. A comparison that takes longer than 30 s continues:
/// `report` is null, and the same request with `next_cursor` as its `cursor` waits for the end.
#[utoipa::path(post, path = "/", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    request_body(content = UpkeepRequest, example = json!({ "reason": "Redis was restored" })),
    responses(
        (status = 200, description = "success", body = Object,
         example = json!({ "report": { "rebuild": true, "looked_at": 120, "inserted": 0, "moved": 0, "held": 0, "compensated": 0 },
                           "warning": null, "next_cursor": null })),
        CallErrors,
    ))]
async fn reconcile_jobs(
    State(app): State<App>,
    caller: ApiCaller,
    JsonBody(UpkeepRequest { reason, cursor }): JsonBody<UpkeepRequest>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    let reason = optional_reason(reason)?;
    let since = read_time_cursor(cursor.as_deref())?;
    let run = match since {
        None => reconciler::start_full_run(&app.maintenance, SLICE).await?,
        Some(since) => reconciler::await_full_run(&app.maintenance, since, SLICE).await?,
    };
    let result = match &run {
        FullRun::Done(report) => Some(json!(report)),
        FullRun::UnderWay { .. } => Some(json!({ "under_way": true })),
        FullRun::Refused | FullRun::Failed => None,
    };
    // The request that started the run records it. Later requests only wait.
    if let (None, Some(result)) = (since, result) {
        let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
        record_work(&app.core.db, by, StaffAction::ReconciliationRun, "reconciliation", result).await?;
    }
    let report = match run {
        FullRun::Done(report) => report,
        FullRun::UnderWay { since } => {
            let next_cursor = since.timestamp_micros().to_string();
            return Ok(Json(json!({ "report": null, "warning": null, "next_cursor": next_cursor })));
        }
        FullRun::Refused => return Err(StaffError::ReconcilerRuns.into()),
        FullRun::Failed => return Err(ServiceError::Incomplete("the reconciliation has no report".to_owned()).into()),
    };
    let warning = match timeout(MIRROR_TIME, mirror::mirror_once(&app.core)).await {
        Ok(compared) => compared.err().map(|error| error.to_string()),
        Err(_) => Some(format!("the comparison of dead letters took longer than {MIRROR_TIME:?}; workers continue it")),
    };
    Ok(Json(json!({ "report": report, "warning": warning, "next_cursor": null })))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CleanupRequest {
    /// If true, nothing is removed; the answer has the numbers that would be removed.
    dry_run: bool,
    /// Reason, kept in the record together with the actor.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
    /// The `next_cursor` of the answer before.
    #[schema(max_length = 500)]
    cursor: Option<String>,
}

/// Removes rows whose retention time has passed.
///
/// Workers do this as `[schedules]` sets it. The answer has the numbers of removed orders, messages, rankings,
/// Idempotency-Keys, records, dead jobs, transactions and bindings. `failed` lists the kinds that could not be removed,
/// with the cause. One request works for about 30 s. If more is left, `next_cursor` is not null: the same request with it as
/// its `cursor` continues.
#[utoipa::path(post, path = "/", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    request_body(content = CleanupRequest, example = json!({ "dry_run": true })),
    responses(
        (status = 200, description = "success", body = Object,
         example = json!({ "orders": 12, "details": 30, "messages": 40, "rankings": 0, "idempotency_keys": 7, "records": 0, "dead_jobs": 0,
                           "transactions": 0, "bindings": 0, "failed": [], "next_cursor": null })),
        CallErrors,
    ))]
async fn clean_up_rows(
    State(app): State<App>,
    caller: ApiCaller,
    JsonBody(CleanupRequest { dry_run, reason, cursor }): JsonBody<CleanupRequest>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    let reason = optional_reason(reason)?;
    let from: CleanupPlace = read_cursor(cursor.as_deref())?.unwrap_or_default();
    let mode = if dry_run { CleanupMode::DryRun } else { CleanupMode::Remove };
    let (report, next) = cleanup::run_slice(&app.maintenance, mode, from, WorkSlice::lasting(SLICE)).await?;
    if !dry_run {
        let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
        record_work(&app.core.db, by, StaffAction::CleanupRun, "cleanup", json!(report)).await?;
    }
    let mut answer = json!(report);
    answer["next_cursor"] = json!(next.as_ref().map(ToString::to_string));
    Ok(Json(answer))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HistoryQuery {
    /// Maximum number of provider calls that may have been open at once. Default: the current limit.
    #[param(minimum = 1, maximum = 100000)]
    max_calls: Option<u32>,
}

/// Checks the history against its invariants.
///
/// Each of the `violations` has invariant, subject and detail. Each of the `checks` has name and meaning.
#[utoipa::path(get, path = "/", tag = "admin", params(HistoryQuery), extensions(("x-roles" = json!(OPERATORS))),
    responses(
        (status = 200, description = "success", body = Object,
         example = json!({ "violations": [],
                           "checks": [{ "name": "no_dead_job_without_reason", "meaning": "every dead job has a reason" }] })),
        CallErrors,
    ))]
async fn check_history(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<HistoryQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    let Query(HistoryQuery { max_calls }) = wanted?;
    if max_calls.is_some_and(|most| !(1..=MOST_CALLS).contains(&most)) {
        return Err(ApiError::invalid_parameter("max_calls", format!("max_calls must be 1 to {MOST_CALLS}")));
    }
    let violations = match max_calls {
        Some(max_calls) => audit::check_history_within(&app.maintenance, max_calls).await?,
        None => audit::check_history(&app.maintenance).await?,
    };
    let queries = INVARIANTS.into_iter().chain(BINDING_INVARIANTS).chain([LEGAL_TRANSITIONS]);
    let listed = queries.map(|checked| (checked.name, checked.meaning));
    let checks: Vec<_> =
        listed.chain(OTHER_CHECKS).map(|(name, meaning)| json!({ "name": name, "meaning": meaning })).collect();
    Ok(Json(json!({ "violations": violations, "checks": checks })))
}
