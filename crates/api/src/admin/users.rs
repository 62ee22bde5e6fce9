//! Staff who receive messages: `/api/v1/admin/users`.

use axum::{
    Json,
    extract::{FromRequestParts, Query, Request, State, rejection::QueryRejection},
    http::request::Parts,
};
use foundation::core::Core;
use model::{input, scope::Scope};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema, openapi::Object};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    ADMINS, ActionRequest,
    examples::{example_user, example_users},
    scopes::check_scope,
};
use crate::{
    auth::ApiCaller,
    bindings::word_schema,
    body::{JsonBody, ReasonQuery, text_in_path},
    error::ApiError,
    json_lines,
    openapi::CallErrors,
    reason::{StaffReason, optional_reason_parameter},
};
use accounts::{
    api_keys::AccountRole,
    recorded,
    users::{self, UserAccount},
};
use app::App;
use foundation::staff_actions::ActionAuthor;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_users))
        .routes(routes!(import_users))
        .routes(routes!(save_user))
        .routes(routes!(disable_user))
        .routes(routes!(enable_user))
        .routes(routes!(remove_user))
}

/// The user that a path names.
#[derive(Debug, IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
struct UserPath(
    /// The user's id.
    #[param(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}$", example = "anna")]
    String,
);

impl<S: Send + Sync> FromRequestParts<S> for UserPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = text_in_path(parts, state).await?;
        match input::ID.find_problem(&id) {
            None => Ok(Self(id)),
            Some(problem) => Err(ApiError::invalid_parameter("id", format!("id {problem}"))),
        }
    }
}

/// Lists users with their channels.
///
/// Each of the `users` has id, name, role and channel, and the time since which it is disabled. The list has at most
/// 10,000 users.
#[utoipa::path(get, path = "/", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    responses((status = 200, description = "success", body = Object, example = json!(example_users())), CallErrors))]
async fn list_users(State(app): State<App>, caller: ApiCaller) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    Ok(Json(json!({ "users": users::list_users(&app.core.db).await? })))
}

/// A staff member who receives messages.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SaveUserRequest {
    #[schema(max_length = 200)]
    name: String,
    #[schema(schema_with = role_schema)]
    role: AccountRole,
    /// Configured channel for this user's messages. Default: `log`.
    channel: Option<String>,
    /// Address for a channel of e-mail. Default: the addresses of the channel.
    #[schema(max_length = 254, format = "email")]
    email: Option<String>,
    /// Number for a channel of phone calls.
    #[schema(pattern = "^\\+[1-9][0-9]{6,14}$")]
    phone: Option<String>,
    /// Orders that this person may read after a sign-in at the OpenID Connect provider. Default: all.
    scope: Option<Scope>,
    /// Reason, kept in the record.
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
}

fn role_schema() -> Object {
    word_schema(["dispatcher", "support", "operator", "admin"])
}

/// Creates or updates a user.
#[utoipa::path(put, path = "/{id}", tag = "admin", params(UserPath), extensions(("x-roles" = json!(ADMINS))),
    request_body(content = SaveUserRequest,
        example = json!({ "name": "Anna", "role": "dispatcher", "channel": "log", "reason": "begins on Monday" })),
    responses((status = 200, description = "success", body = Object, example = json!(example_user())), CallErrors))]
async fn save_user(
    State(app): State<App>,
    caller: ApiCaller,
    UserPath(id): UserPath,
    JsonBody(request): JsonBody<SaveUserRequest>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    let SaveUserRequest { name, role, channel, email, phone, scope, reason } = request;
    let reason = reason.check(&caller)?;
    let scope = check_scope(&app, scope).await?;
    let channel = channel.unwrap_or_else(|| "log".to_owned());
    let user = UserAccount { id, name, role, channel, email, phone, scope };
    if let Some(problem) = users::find_missing_phone(&user, &app.config) {
        return Err(ApiError::invalid_member("phone", problem));
    }
    let channels: Vec<&str> = app.config.channels.keys().map(String::as_str).collect();
    let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    recorded::save_user(&app.core.db, &user, &channels, by).await?;
    Ok(Json(json!(user)))
}

/// Creates or updates users: all of the import, or none.
///
/// The body has one JSON object per line, at most 16 MiB: id, name and role, and optionally channel, email, phone and scope.
/// Repeating the import is harmless.
#[utoipa::path(post, path = "/import", tag = "admin", params(ReasonQuery), extensions(("x-roles" = json!(ADMINS))),
    request_body(content = Object, content_type = "application/jsonl", description = "a user per line",
        example = json!({ "id": "anna", "name": "Anna", "role": "dispatcher", "channel": "log" })),
    responses((status = 200, description = "success", body = Object, example = json!({ "imported": 1 })), CallErrors))]
async fn import_users(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<ReasonQuery>, QueryRejection>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    let reason = optional_reason_parameter(wanted?.0.reason)?;
    let channels: Vec<&str> = app.config.channels.keys().map(String::as_str).collect();
    let find_problem =
        |user: &UserAccount| user.find_problem(&channels).or_else(|| users::find_missing_phone(user, &app.config));
    let mut new = json_lines::read_json_lines(request, |user: &UserAccount| user.id.clone(), find_problem).await?;
    for user in &mut new {
        user.scope = check_scope(&app, user.scope.take()).await?;
    }
    let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    recorded::import_users(&app.core.db, &new, by).await?;
    Ok(Json(json!({ "imported": new.len() })))
}

async fn set_disabled(
    core: &Core,
    caller: &ApiCaller,
    id: &str,
    disabled: bool,
    reason: StaffReason,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    let reason = reason.check(caller)?;
    let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    recorded::set_user_disabled(&core.db, id, disabled, by).await?;
    Ok(Json(json!({ "id": id, "disabled": disabled })))
}

/// Stops messages to this user.
#[utoipa::path(post, path = "/{id}/disable", tag = "admin", params(UserPath), extensions(("x-roles" = json!(ADMINS))),
    request_body(content = ActionRequest, example = json!({ "reason": "on leave" })),
    responses((status = 200, description = "success", body = Object, example = json!({ "id": "anna", "disabled": true })), CallErrors))]
async fn disable_user(
    State(app): State<App>,
    caller: ApiCaller,
    UserPath(id): UserPath,
    JsonBody(ActionRequest { reason }): JsonBody<ActionRequest>,
) -> Result<Json<Value>, ApiError> {
    set_disabled(&app.core, &caller, &id, true, reason).await
}

/// Resumes messages to this user.
#[utoipa::path(post, path = "/{id}/enable", tag = "admin", params(UserPath), extensions(("x-roles" = json!(ADMINS))),
    request_body(content = ActionRequest, example = json!({ "reason": "is back" })),
    responses((status = 200, description = "success", body = Object, example = json!({ "id": "anna", "disabled": false })), CallErrors))]
async fn enable_user(
    State(app): State<App>,
    caller: ApiCaller,
    UserPath(id): UserPath,
    JsonBody(ActionRequest { reason }): JsonBody<ActionRequest>,
) -> Result<Json<Value>, ApiError> {
    set_disabled(&app.core, &caller, &id, false, reason).await
}

/// Removes a user.
///
/// The user's keys stay valid until they are revoked.
#[utoipa::path(post, path = "/{id}/remove", tag = "admin", params(UserPath), extensions(("x-roles" = json!(ADMINS))),
    request_body(content = ActionRequest, example = json!({ "reason": "left the company" })),
    responses((status = 200, description = "success", body = Object, example = json!({ "removed": "anna" })), CallErrors))]
async fn remove_user(
    State(app): State<App>,
    caller: ApiCaller,
    UserPath(id): UserPath,
    JsonBody(ActionRequest { reason }): JsonBody<ActionRequest>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    let reason = reason.check(&caller)?;
    let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    recorded::remove_user(&app.core.db, &id, by).await?;
    Ok(Json(json!({ "removed": id })))
}
