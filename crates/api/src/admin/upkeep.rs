//! What workers do by themselves, asked for by staff: `/api/v1/admin/reconciliation`, `/api/v1/admin/cleanup`; and the check of the
//! history: `/api/v1/admin/history-check`.

use app::App;
use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use desk::dead_letters::mirror;
use maintenance::{
    audit::{self, binding_invariants::BINDING_INVARIANTS, invariants::INVARIANTS},
    periodic::cleanup::{self, CleanupMode},
    recovery::{reconciler, repair},
};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{ADMINS, OPERATORS};
use crate::{
    auth::ApiCaller,
    bindings::EmptyBody,
    body::JsonBody,
    error::{ApiError, StaffError},
    openapi::CallErrors,
};

const MOST_CALLS: u32 = 100_000;
/// Checks beside those of the list of invariants.
const OTHER_CHECKS: [(&str, &str); 4] = [
    ("legal_transitions", "every transition is in the table of docs/STATES.md"),
    ("no_timer_missing", "Redis holds every timer that orders and bindings need"),
    ("no_dead_job_without_reason", "every dead job says why"),
    ("waiting_sets_equal_rows", "who waits in an area waits there in Redis, too"),
];

pub(crate) fn reconciliation_routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(list_missing_jobs, reconcile_jobs))
}

pub(crate) fn cleanup_routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(clean_up_rows))
}

pub(crate) fn history_routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(check_history))
}

/// Lists the timers that Postgres asks for and Redis lacks. Nothing is changed.
///
/// `missing`: id and queue of each. Workers put them back by themselves.
#[utoipa::path(get, path = "/", tag = "admin", extensions(("x-roles" = json!(OPERATORS))),
    responses(
        (status = 200, description = "done", body = Object,
         example = json!({ "missing": [{ "id": "timeout:ORD-1:1", "queue": "dispatch-timeout-queue" }] })),
        CallErrors,
    ))]
async fn list_missing_jobs(State(app): State<App>, caller: ApiCaller) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    let missing = repair::list_missing(&app.core).await?;
    let missing: Vec<_> = missing.iter().map(|job| json!({ "id": job.id.as_str(), "queue": job.queue })).collect();
    Ok(Json(json!({ "missing": missing })))
}

/// Compares Redis with Postgres, and puts back what is missing.
///
/// `report`: rows looked at, timers put back and moved, orders held for review and ended. `warning`: why dead letters could not be compared;
/// null if they were.
#[utoipa::path(post, path = "/", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    responses(
        (status = 200, description = "done", body = Object,
         example = json!({ "report": { "rebuild": true, "looked_at": 120, "inserted": 0, "moved": 0, "held": 0, "compensated": 0 },
                           "warning": null })),
        CallErrors,
    ))]
async fn reconcile_jobs(
    State(app): State<App>,
    caller: ApiCaller,
    JsonBody(EmptyBody {}): JsonBody<EmptyBody>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    let report = reconciler::reconcile_in_full(&app.maintenance).await?.ok_or(StaffError::ReconcilerRuns)?;
    let warning = mirror::mirror_once(&app.core).await.err().map(|error| error.to_string());
    Ok(Json(json!({ "report": report, "warning": warning })))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CleanupRequest {
    /// True: nothing is removed; the answer counts what would be.
    dry_run: bool,
}

/// Removes what retention no longer keeps. Workers do this by `[schedules]`.
///
/// Orders, messages, rankings, keys, records, dead jobs, transactions and bindings that were removed. `failed`: what could not be
/// removed, and why.
#[utoipa::path(post, path = "/", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    request_body(content = CleanupRequest, example = json!({ "dry_run": true })),
    responses(
        (status = 200, description = "done", body = Object,
         example = json!({ "orders": 12, "messages": 40, "rankings": 0, "idempotency_keys": 7, "records": 0, "dead_jobs": 0,
                           "transactions": 0, "bindings": 0, "failed": [] })),
        CallErrors,
    ))]
async fn clean_up_rows(
    State(app): State<App>,
    caller: ApiCaller,
    JsonBody(CleanupRequest { dry_run }): JsonBody<CleanupRequest>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    let mode = if dry_run { CleanupMode::DryRun } else { CleanupMode::Remove };
    Ok(Json(json!(cleanup::run_all(&app.maintenance, mode).await?)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HistoryQuery {
    /// calls of providers that may have been open at once; left out, the limit that holds now
    #[param(minimum = 1, maximum = 100000)]
    max_calls: Option<u32>,
}

/// Checks the history against its invariants.
///
/// `violations`: invariant, subject and detail of each. `checks`: name and meaning of what was checked.
#[utoipa::path(get, path = "/", tag = "admin", params(HistoryQuery), extensions(("x-roles" = json!(OPERATORS))),
    responses(
        (status = 200, description = "done", body = Object,
         example = json!({ "violations": [],
                           "checks": [{ "name": "no_dead_job_without_reason", "meaning": "every dead job says why" }] })),
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
    let listed = INVARIANTS.into_iter().chain(BINDING_INVARIANTS).map(|checked| (checked.name, checked.meaning));
    let checks: Vec<_> =
        listed.chain(OTHER_CHECKS).map(|(name, meaning)| json!({ "name": name, "meaning": meaning })).collect();
    Ok(Json(json!({ "violations": violations, "checks": checks })))
}
