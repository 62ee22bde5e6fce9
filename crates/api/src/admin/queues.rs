//! Queues: `/api/v1/admin/queues`.

use axum::{
    Json,
    extract::{FromRequestParts, State},
    http::{StatusCode, request::Parts},
    response::Response,
};
use serde_json::{Value, json};
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{ActionRequest, OPERATORS, examples::example_queues, find_queue};
use crate::{
    auth::ApiCaller,
    body::text_in_path,
    error::ApiError,
    idempotency::IdempotencyHeader,
    keyed_call::{KeyedCall, KeyedRequest},
    openapi::CallErrors,
};
use app::App;
use foundation::{error::ServiceError, queue_pauses, staff_actions::ActionAuthor};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(list_queues)).routes(routes!(pause_queue)).routes(routes!(resume_queue))
}

/// The queue that a path names.
#[derive(Debug, IntoParams)]
#[into_params(names("queue"), parameter_in = Path)]
struct QueuePath(
    /// Name of the queue.
    #[param(value_type = String, pattern = "^[a-z-]{1,64}$", example = "dispatch-queue")]
    &'static str,
);

impl<S: Send + Sync> FromRequestParts<S> for QueuePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let name = text_in_path(parts, state).await?;
        find_queue(&name).map(Self)
    }
}

/// Lists the queues with their depths, and the lateness of jobs.
///
/// Each of the `queues` has the numbers of due, scheduled, leased, dead and parked jobs, `paused`, and the wait of its
/// oldest due job. `lateness` is in ms, over all workers, since the start of the last hour.
#[utoipa::path(get, path = "/", tag = "admin", extensions(("x-roles" = json!(OPERATORS))),
    responses((status = 200, description = "success", body = Object, example = json!(example_queues())), CallErrors))]
async fn list_queues(State(app): State<App>, caller: ApiCaller) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    let queues = app.core.queue().queue_stats(&jobs::queues::ALL).await.map_err(ServiceError::from)?;
    let lateness = app.core.store.read_lateness().await.map_err(ServiceError::from)?;
    Ok(Json(json!({ "queues": queues, "lateness": lateness })))
}

type QueueCall = KeyedCall<QueuePath, ActionRequest>;

/// Pauses or resumes a queue, once per Idempotency-Key. `name` identifies the kind of request.
async fn set_paused(call: QueueCall, name: &str, paused: bool) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: QueuePath(queue), value: ActionRequest { reason } } = call;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&OPERATORS)?;
    let reason = reason.check(caller)?;
    let work = async |_| {
        let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
        let changed = if paused {
            queue_pauses::pause_queue(&app.core, queue, by).await?
        } else {
            queue_pauses::resume_queue(&app.core, queue, by).await?
        };
        Ok::<_, ApiError>((StatusCode::OK, json!({ "queue": queue, "paused": paused, "changed": changed })))
    };
    request.run_once(name, queue.as_bytes(), work).await
}

/// Pauses a queue.
///
/// Its jobs wait; running jobs finish.
#[utoipa::path(post, path = "/{queue}/pause", tag = "admin", params(QueuePath, IdempotencyHeader),
    extensions(("x-roles" = json!(OPERATORS))),
    request_body(content = ActionRequest, example = json!({ "reason": "the map service is down" })),
    responses(
        (status = 200, description = "success", body = Object,
         example = json!({ "queue": "dispatch-queue", "paused": true, "changed": true })),
        CallErrors,
    ))]
async fn pause_queue(call: QueueCall) -> Result<Response, ApiError> {
    set_paused(call, "pause queue", true).await
}

/// Resumes a paused queue.
#[utoipa::path(post, path = "/{queue}/resume", tag = "admin", params(QueuePath, IdempotencyHeader),
    extensions(("x-roles" = json!(OPERATORS))),
    request_body(content = ActionRequest, example = json!({ "reason": "the map service is back" })),
    responses(
        (status = 200, description = "success", body = Object,
         example = json!({ "queue": "dispatch-queue", "paused": false, "changed": true })),
        CallErrors,
    ))]
async fn resume_queue(call: QueueCall) -> Result<Response, ApiError> {
    set_paused(call, "resume queue", false).await
}
