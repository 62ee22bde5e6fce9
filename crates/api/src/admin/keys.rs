//! Keys of producers, drivers and staff: `/api/v1/admin/keys`.
//!
//! Only the answer that creates a key contains its text. Such a request takes no Idempotency-Key, because answers are
//! stored under that header. A repeated request is refused because the name is taken.

use std::time::Duration;

use axum::{
    Json,
    extract::{FromRequestParts, Path, Query, State, rejection::QueryRejection},
    http::{HeaderName, StatusCode, header::CACHE_CONTROL, request::Parts},
};
use model::input::Given;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema, openapi::Object};
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use super::{ADMINS, ActionRequest, examples::example_keys, scopes::check_scope};
use crate::{
    auth::ApiCaller,
    bindings::{next_cursor, page_size, word_schema},
    body::JsonBody,
    error::{ApiError, StaffError},
    openapi::CallErrors,
    orders::bounded_parameter,
    reason::StaffReason,
};
use accounts::{
    api_keys::{AccountRole, ApiKey},
    key_admin::{self, KeyFilter, KeySelection, NewKey},
    recorded,
};
use app::App;
use foundation::staff_actions::ActionAuthor;
use model::{ids::DriverId, scope::Scope};

/// Maximum lifetime in seconds: ten years.
const LONGEST_SEC: u32 = 315_360_000;
/// Default time in seconds that a replaced key stays valid.
const OVERLAP_SEC: u32 = 86_400;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_keys, create_key))
        .routes(routes!(rotate_key))
        .routes(routes!(revoke_key))
        .routes(routes!(set_scope))
}

fn role_schema() -> Object {
    word_schema(["producer", "driver", "viewer", "dispatcher", "support", "operator", "admin"])
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct KeyListQuery {
    /// Only keys of this role.
    #[param(schema_with = role_schema)]
    role: Option<AccountRole>,
    /// Only keys of this driver.
    #[param(value_type = Option<String>)]
    driver_id: Option<DriverId>,
    /// Only keys whose name contains this text.
    name: Option<String>,
    /// Only keys not used for this many seconds, or never.
    #[param(minimum = 1, maximum = 315360000)]
    unused_for_sec: Option<u32>,
    /// Also keys that are no longer valid.
    #[serde(default)]
    all: bool,
    /// The `next_cursor` of the previous page.
    cursor: Option<Uuid>,
    /// Maximum number of keys per page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

/// Lists keys without their text, oldest first, page by page.
///
/// Each of the `keys` has id, name, role and driver, the times when it was created, last used, replaced and revoked,
/// its expiry, its scope, and `valid`.
#[utoipa::path(get, path = "/", tag = "admin", params(KeyListQuery), extensions(("x-roles" = json!(ADMINS))),
    responses((status = 200, description = "success", body = Object, example = json!(example_keys())), CallErrors))]
async fn list_keys(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<KeyListQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    let Query(KeyListQuery { role, driver_id, name, unused_for_sec, all, cursor, limit }) = wanted?;
    let limit = page_size(limit)?;
    let unused_for = match unused_for_sec {
        Some(secs) if !(1..=LONGEST_SEC).contains(&secs) => {
            let rule = format!("unused_for_sec must be 1 to {LONGEST_SEC}");
            return Err(ApiError::invalid_parameter("unused_for_sec", rule));
        }
        secs => secs.map(|secs| Duration::from_secs(secs.into())),
    };
    let filter = KeyFilter { role, driver: driver_id, name: bounded_parameter("name", name)?, all, unused_for };
    let keys = key_admin::list_page(&app.core.db, &filter, cursor, i64::from(limit)).await?;
    let next_cursor = next_cursor(&keys, limit, |key| key.id);
    Ok(Json(json!({ "keys": keys, "next_cursor": next_cursor })))
}

/// A key to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CreateKeyRequest {
    /// Name of the key's holder in the history. It is unique among live keys. It is stored trimmed and in NFKC, and
    /// compared without case.
    #[schema(min_length = 1, max_length = 64)]
    name: String,
    #[schema(schema_with = role_schema)]
    role: AccountRole,
    /// Driver of the key. Required for the role driver, and refused for all others.
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    driver_id: Option<Given<DriverId>>,
    /// Lifetime in seconds. Default: valid until revoked.
    #[schema(minimum = 1, maximum = 315360000)]
    expires_in_sec: Option<u32>,
    /// Whether the key takes over the orders of an earlier producer of this name. Without it, such a name is refused.
    #[serde(default)]
    take_over: bool,
    /// Orders that the holder may read. Default: all. Refused for the roles producer and driver.
    scope: Option<Scope>,
    /// Reason, kept in the record.
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
}

/// A new key.
#[derive(Serialize, ToSchema)]
#[schema(as = NewKey)]
struct NewKeyAnswer {
    id: Uuid,
    name: String,
    #[schema(schema_with = role_schema)]
    role: AccountRole,
    /// Text of the key. It is shown only once and not stored.
    key: String,
}

type KeyAnswer = (StatusCode, [(HeaderName, &'static str); 1], Json<NewKeyAnswer>);

fn answer_with_key(status: StatusCode, (row, key): (ApiKey, String)) -> KeyAnswer {
    let answer = NewKeyAnswer { id: row.id, name: row.name, role: row.role, key };
    (status, [(CACHE_CONTROL, "no-store")], Json(answer))
}

fn check_seconds(name: &str, secs: Option<u32>) -> Result<Option<Duration>, ApiError> {
    match secs {
        Some(secs) if !(1..=LONGEST_SEC).contains(&secs) => {
            Err(ApiError::invalid_member(name, format!("{name} must be 1 to {LONGEST_SEC}")))
        }
        secs => Ok(secs.map(|secs| Duration::from_secs(secs.into()))),
    }
}

/// Creates a key.
///
/// Only this answer contains its text.
#[utoipa::path(post, path = "/", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    request_body(content = CreateKeyRequest,
        example = json!({ "name": "anna", "role": "dispatcher", "reason": "begins on Monday" })),
    responses(
        (status = 201, description = "success", body = NewKeyAnswer, example = json!(example_key())),
        CallErrors,
    ))]
async fn create_key(
    State(app): State<App>,
    caller: ApiCaller,
    JsonBody(new): JsonBody<CreateKeyRequest>,
) -> Result<KeyAnswer, ApiError> {
    caller.require_role(&ADMINS)?;
    let reason = new.reason.check(&caller)?;
    if (new.role == AccountRole::Driver) != new.driver_id.is_some() {
        return Err(ApiError::invalid_member(
            "driver_id",
            "driver_id is required for the role driver, and refused for all others",
        ));
    }
    if new.scope.is_some() && !new.role.is_staff() {
        return Err(ApiError::invalid_member("scope", "scope is refused for the roles producer and driver"));
    }
    let scope = check_scope(&app, new.scope).await?;
    let driver_id = new.driver_id.map(|Given(id)| id);
    let expires_in = check_seconds("expires_in_sec", new.expires_in_sec)?;
    let wanted = NewKey {
        name: &new.name,
        role: new.role,
        driver_id: driver_id.as_ref(),
        expires_in,
        takes_over: new.take_over,
        scope: scope.as_ref(),
    };
    let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    Ok(answer_with_key(StatusCode::CREATED, recorded::create_key(&app.core.db, &wanted, by).await?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RotateKeyRequest {
    #[schema(min_length = 1, max_length = 64)]
    name: String,
    /// Seconds that the old key stays valid. Default: one day.
    #[schema(minimum = 1, maximum = 315360000)]
    overlap_sec: Option<u32>,
    /// Lifetime of the new key in seconds. Default: valid until revoked.
    #[schema(minimum = 1, maximum = 315360000)]
    expires_in_sec: Option<u32>,
    /// Reason, kept in the record.
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
}

/// Replaces the key of a name by a new key with the same rights.
#[utoipa::path(post, path = "/rotate", tag = "admin", extensions(("x-roles" = json!(ADMINS))),
    request_body(content = RotateKeyRequest, example = json!({ "name": "anna", "reason": "a laptop was lost" })),
    responses(
        (status = 200, description = "success", body = NewKeyAnswer, example = json!(example_key())),
        CallErrors,
    ))]
async fn rotate_key(
    State(app): State<App>,
    caller: ApiCaller,
    JsonBody(wanted): JsonBody<RotateKeyRequest>,
) -> Result<KeyAnswer, ApiError> {
    caller.require_role(&ADMINS)?;
    let reason = wanted.reason.check(&caller)?;
    let overlap = check_seconds("overlap_sec", wanted.overlap_sec)?;
    let overlap = overlap.unwrap_or(Duration::from_secs(OVERLAP_SEC.into()));
    let expires_in = check_seconds("expires_in_sec", wanted.expires_in_sec)?;
    let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    let made = recorded::rotate_key(&app.core.db, &wanted.name, overlap, expires_in, by).await?;
    Ok(answer_with_key(StatusCode::OK, made))
}

/// The key that a path names.
#[derive(Debug, IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
struct KeyPath(
    /// The key's id.
    #[param(value_type = String, pattern = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        example = "01937c3e-8f00-7000-8000-000000000001")]
    Uuid,
);

impl<S: Send + Sync> FromRequestParts<S> for KeyPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = Path::<Uuid>::from_request_parts(parts, state).await;
        id.map(|Path(id)| Self(id)).map_err(|_| StaffError::NoSuchKey.into())
    }
}

/// Revokes a key.
///
/// It is invalid within a second. A repeated request is answered 404.
#[utoipa::path(post, path = "/{id}/revoke", tag = "admin", params(KeyPath), extensions(("x-roles" = json!(ADMINS))),
    request_body(content = ActionRequest, example = json!({ "reason": "left the company" })),
    responses((status = 200, description = "success", body = Object, example = json!({ "revoked": { "id": "01937c3e-8f00-7000-8000-000000000001", "name": "anna" } })), CallErrors))]
async fn revoke_key(
    State(app): State<App>,
    caller: ApiCaller,
    KeyPath(id): KeyPath,
    JsonBody(ActionRequest { reason }): JsonBody<ActionRequest>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    let reason = reason.check(&caller)?;
    let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    let revoked = recorded::revoke_keys(&app.core.db, &KeySelection::Id(id), by).await?;
    let (id, name) = revoked.into_iter().next().ok_or(StaffError::NoSuchKey)?;
    Ok(Json(json!({ "revoked": { "id": id, "name": name } })))
}

/// A new scope of a key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct KeyScopeRequest {
    /// Orders that the holder may read; null: all.
    scope: Option<Scope>,
    /// Reason, kept in the record.
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
}

/// Sets or removes the scope of a key of staff.
///
/// It takes effect within a second, also in open sessions of the console. A replacing key keeps the scope.
#[utoipa::path(put, path = "/{id}/scope", operation_id = "set_key_scope", tag = "admin", params(KeyPath),
    extensions(("x-roles" = json!(ADMINS))),
    request_body(content = KeyScopeRequest,
        example = json!({ "scope": { "service_types": ["RIDE"] }, "reason": "works for one service" })),
    responses(
        (status = 200, description = "success", body = Object,
         example = json!({ "id": "01937c3e-8f00-7000-8000-000000000001", "scope": { "service_types": ["RIDE"] } })),
        CallErrors,
    ))]
async fn set_scope(
    State(app): State<App>,
    caller: ApiCaller,
    KeyPath(id): KeyPath,
    JsonBody(KeyScopeRequest { scope, reason }): JsonBody<KeyScopeRequest>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&ADMINS)?;
    let reason = reason.check(&caller)?;
    let scope = check_scope(&app, scope).await?;
    let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
    recorded::set_key_scope(&app.core.db, id, scope.as_ref(), by).await?;
    Ok(Json(json!({ "id": id, "scope": scope })))
}

/// Returns the key of a dispatcher.
fn example_key() -> Value {
    json!({ "id": "01937c3e-8f00-7000-8000-000000000001", "name": "anna", "role": "dispatcher", "key": "dq_..." })
}
