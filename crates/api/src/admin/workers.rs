//! Workers: `/api/v1/admin/workers`.

use axum::{
    Json,
    extract::{FromRequestParts, State},
    http::{StatusCode, request::Parts},
    response::Response,
};
use serde_json::{Value, json};
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    ActionRequest, OPERATORS,
    examples::{example_drained_worker, example_workers},
};
use crate::{
    auth::ApiCaller,
    body::text_in_path,
    error::{ApiError, StaffError},
    idempotency::IdempotencyHeader,
    keyed_call::{KeyedCall, KeyedRequest},
    openapi::CallErrors,
};
use app::App;
use foundation::{
    staff_actions::ActionAuthor,
    worker_drains::{self, DrainChange},
};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(list_workers)).routes(routes!(drain_worker)).routes(routes!(resume_worker))
}

/// The worker that a path names.
#[derive(Debug, IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
struct WorkerPath(
    /// `boot` of the worker.
    #[param(value_type = String, pattern = "^[A-Za-z0-9-]{1,64}$", example = "5f1c0e7a9b3d2468")]
    String,
);

impl<S: Send + Sync> FromRequestParts<S> for WorkerPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        text_in_path(parts, state).await.map(Self)
    }
}

/// Lists the workers that reported within the last minute.
///
/// Each of the `workers` has its id (`boot`), replica, host, pid, version, queues, number of running jobs, start time,
/// and time since its last report. `resident_bytes` and `cpu_percent` (of one core, since the report before) are missing
/// if the system does not report them. `state` is `running`, `draining` or `drained`; `drain` has the author, time and
/// reason of a drain, and `drain_ms` is the time of the drain that the worker has confirmed.
#[utoipa::path(get, path = "/", tag = "admin", extensions(("x-roles" = json!(OPERATORS))),
    responses((status = 200, description = "success", body = Object, example = json!(example_workers())), CallErrors))]
async fn list_workers(State(app): State<App>, caller: ApiCaller) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    Ok(Json(json!({ "workers": worker_drains::list_workers(&app.core).await? })))
}

type WorkerCall = KeyedCall<WorkerPath, ActionRequest>;

/// Drains or resumes a worker, once per Idempotency-Key. `name` identifies the kind of request.
async fn set_drained(call: WorkerCall, name: &str, drained: bool) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: WorkerPath(id), value: ActionRequest { reason } } = call;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&OPERATORS)?;
    let reason = reason.check(caller)?;
    let work = async |_| {
        let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
        let done = if drained {
            worker_drains::drain_worker(&app.core, &id, by).await?
        } else {
            worker_drains::resume_worker(&app.core, &id, by).await?
        };
        let done = done.ok_or(StaffError::NoSuchWorker)?;
        Ok::<_, ApiError>((StatusCode::OK, show_change(&id, done)))
    };
    request.run_once(name, id.as_bytes(), work).await
}

fn show_change(id: &str, change: DrainChange) -> Value {
    let DrainChange { changed, worker, unserved_queues } = change;
    let state = worker.map(|worker| worker.state);
    json!({ "boot": id, "state": state, "changed": changed, "unserved_queues": unserved_queues })
}

/// Drains a worker.
///
/// It takes no more jobs and finishes the running ones; other workers take the waiting ones. The drain lasts until the
/// worker is resumed or its process ends. `unserved_queues` are the queues that no other worker takes jobs of.
#[utoipa::path(post, path = "/{id}/drain", tag = "admin", params(WorkerPath, IdempotencyHeader),
    extensions(("x-roles" = json!(OPERATORS))),
    request_body(content = ActionRequest, example = json!({ "reason": "the host is being replaced" })),
    responses(
        (status = 200, description = "success", body = Object, example = json!(example_drained_worker("draining"))),
        CallErrors,
    ))]
async fn drain_worker(call: WorkerCall) -> Result<Response, ApiError> {
    set_drained(call, "drain worker", true).await
}

/// Resumes a drained worker.
///
/// It takes jobs again. `state` is null if the worker sends no reports.
#[utoipa::path(post, path = "/{id}/resume", tag = "admin", params(WorkerPath, IdempotencyHeader),
    extensions(("x-roles" = json!(OPERATORS))),
    request_body(content = ActionRequest, example = json!({ "reason": "the host stays" })),
    responses(
        (status = 200, description = "success", body = Object, example = json!(example_drained_worker("running"))),
        CallErrors,
    ))]
async fn resume_worker(call: WorkerCall) -> Result<Response, ApiError> {
    set_drained(call, "resume worker", false).await
}
