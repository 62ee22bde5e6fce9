//! Sessions of the console: `/api/v1/admin/sessions`.

use axum::{
    Json,
    extract::{FromRequestParts, Path, Query, State, rejection::QueryRejection},
    http::request::Parts,
};
use model::input;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use super::{ADMINS, examples::example_sessions};
use crate::{
    auth::ApiCaller,
    error::{ApiError, StaffError},
    openapi::CallErrors,
};
use accounts::sessions;
use app::App;
use foundation::staff_actions::ActionAuthor;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(list_sessions)).routes(routes!(end_session))
}

/// Lists the valid sessions, newest first, at most 500.
///
/// Each of the `sessions` has id, key, name and role, the address and time of the sign-in, and the time of its last
/// use.
#[utoipa::path(get, path = "/", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    responses((status = 200, description = "success", body = Object, example = json!(example_sessions())), CallErrors))]
async fn list_sessions(State(app): State<App>, caller: ApiCaller) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    Ok(Json(json!({ "sessions": sessions::list_sessions(&app.core.db).await? })))
}

/// The session that a path names.
#[derive(Debug, IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
struct SessionPath(
    /// The session's id.
    #[param(value_type = String, pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        example = "01937c3e-8f00-7000-8000-000000000001")]
    Uuid,
);

impl<S: Send + Sync> FromRequestParts<S> for SessionPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = Path::<Uuid>::from_request_parts(parts, state).await;
        id.map(|Path(id)| Self(id)).map_err(|_| StaffError::NoSuchSession.into())
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EndQuery {
    /// Reason, kept in the record.
    #[param(min_length = 1, max_length = 500, example = "lost")]
    reason: String,
}

/// Ends a session.
///
/// Its next request is refused. Its key stays valid. A repeated request is answered 404.
#[utoipa::path(delete, path = "/{id}", tag = "admin", params(SessionPath, EndQuery), extensions(("x-roles" = json!(ADMINS))),
    responses((status = 200, description = "success", body = Object, example = json!({ "ended": "01937c3e-8f00-7000-8000-000000000001" })), CallErrors))]
async fn end_session(
    State(app): State<App>,
    caller: ApiCaller,
    SessionPath(id): SessionPath,
    wanted: Result<Query<EndQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    let Query(EndQuery { reason }) = wanted?;
    if let Some(problem) = input::REASON.find_problem(&reason) {
        return Err(ApiError::invalid_parameter("reason", format!("reason {problem}")));
    }
    let by = ActionAuthor { actor: &caller.actor(), reason: Some(&reason) };
    if !sessions::close_session(&app.core.db, id, by).await? {
        return Err(StaffError::NoSuchSession.into());
    }
    Ok(Json(json!({ "ended": id })))
}
