//! Providers' servers, and the limit of open calls: `/api/v1/provider-servers`, `/api/v1/provider-call-limit`.

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use chrono::{DateTime, Utc};
use model::binding::ServerId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    auth::ApiCaller,
    bindings::{READERS, WRITERS, next_cursor, page_size, paths::ServerPath},
    body::RawBody,
    error::ApiError,
    idempotency::{self, IdempotencyHeader, WorkContext},
    keyed_call::{KeyedCall, KeyedRequest},
    openapi::CallErrors,
    reason::StaffReason,
};
use app::App;
use bindings::{
    error::BindingError,
    servers::{self, ListedServer, TotalLimit},
    store::servers::{self as rows, ProviderServer, ServerSettings},
};
use foundation::staff_actions::ActionAuthor;
use model::ids::ProviderName;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_provider_servers, create_provider_server))
        .routes(routes!(show_provider_server, patch_provider_server))
}

pub(crate) fn limit_routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(show_call_limit, set_call_limit))
}

/// A provider's server and its current state.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProviderServer)]
struct ServerView {
    id: String,
    /// Name of the provider in the configuration: `[providers.NAME]`.
    provider: String,
    base_url: String,
    /// Maximum number of open calls.
    max_concurrent: i32,
    /// If false, no cycle starts on the server.
    enabled: bool,
    /// If false, the server is asked for the state of a transaction before a start with a lost answer is repeated.
    repeats_are_safe: bool,
    /// Number of consecutive calls that failed because of the server.
    failures: i32,
    /// No call is made before this time.
    paused_until: Option<DateTime<Utc>>,
    changed_by: String,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<ProviderServer> for ServerView {
    fn from(row: ProviderServer) -> Self {
        Self {
            id: row.id.to_string(),
            provider: row.provider.to_string(),
            base_url: row.base_url,
            max_concurrent: row.max_concurrent,
            enabled: row.enabled,
            repeats_are_safe: row.repeats_are_safe,
            failures: row.failures,
            paused_until: row.paused_until,
            changed_by: row.changed_by,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

/// A provider's server with its open calls.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ListedProviderServer)]
struct ListedServerView {
    #[serde(flatten)]
    server: ServerView,
    /// Number of open calls. Null if Redis does not answer.
    #[schema(required)]
    in_use: Option<u32>,
    /// Number of bindings that wait for a slot. Null if Redis does not answer.
    #[schema(required)]
    waiting: Option<u64>,
    /// True while `paused_until` is in the future.
    left_alone: bool,
}

impl From<ListedServer> for ListedServerView {
    fn from(listed: ListedServer) -> Self {
        let ListedServer { server, in_use, waiting, left_alone } = listed;
        Self { server: server.into(), in_use, waiting, left_alone }
    }
}

fn example_listed_server() -> Value {
    let mut listed = example_server();
    listed["in_use"] = json!(1);
    listed["waiting"] = json!(0);
    listed["left_alone"] = json!(false);
    listed
}

fn example_server() -> Value {
    json!({
        "id": "S1", "provider": "acme", "base_url": "https://s1.acme.example/api", "max_concurrent": 2, "enabled": true,
        "repeats_are_safe": true, "failures": 0, "paused_until": null, "changed_by": "operator:budi",
        "created_at": "2026-01-08T08:00:00Z", "updated_at": "2026-01-08T08:00:00Z",
    })
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ServerQuery {
    /// The `next_cursor` of the previous page.
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9_.-]{1,64}$")]
    cursor: Option<ServerId>,
    /// Maximum number of servers per page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ServerPage {
    servers: Vec<ListedServerView>,
    /// Value of `cursor` for the next page; null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// Lists providers' servers by id, page by page, each with its open calls.
#[utoipa::path(get, path = "/", tag = "bindings", params(ServerQuery), extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = ServerPage,
         example = json!({ "servers": [example_listed_server()], "next_cursor": null })),
        CallErrors,
    ))]
async fn list_provider_servers(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<ServerQuery>, QueryRejection>,
) -> Result<Json<ServerPage>, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let Query(ServerQuery { cursor, limit }) = wanted?;
    let limit = page_size(limit)?;
    let servers = servers::list_with_calls(&app.bindings, cursor.as_ref(), i64::from(limit)).await?;
    let next_cursor = next_cursor(&servers, limit, |listed| listed.server.id.to_string());
    Ok(Json(ServerPage { servers: servers.into_iter().map(ListedServerView::from).collect(), next_cursor }))
}

/// A server to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CreateServerRequest {
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_.-]{1,64}$")]
    id: ServerId,
    /// Name of the provider in the configuration: `[providers.NAME]`.
    #[schema(value_type = String)]
    provider: ProviderName,
    #[schema(max_length = 500)]
    base_url: String,
    /// Maximum number of open calls.
    #[schema(minimum = 1, maximum = 1000, default = 2)]
    max_concurrent: Option<i32>,
    #[schema(default = true)]
    enabled: Option<bool>,
    /// If false, the server is asked for the state of a transaction before a start with a lost answer is repeated.
    #[schema(default = true)]
    repeats_are_safe: Option<bool>,
    /// Reason, kept in the audit record.
    #[serde(default)]
    #[schema(value_type = String, required, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
}

/// Creates a provider's server.
#[utoipa::path(post, path = "/", tag = "bindings", params(IdempotencyHeader), extensions(("x-roles" = json!(WRITERS))),
    request_body(content = CreateServerRequest,
        example = json!({ "id": "S1", "provider": "acme", "base_url": "https://s1.acme.example/api",
                          "reason": "acme opens a second server" })),
    responses(
        (status = 201, description = "success", body = ServerView,
         example = json!(example_server())),
        CallErrors,
    ))]
async fn create_provider_server(
    State(app): State<App>,
    caller: ApiCaller,
    headers: HeaderMap,
    RawBody { bytes, value }: RawBody<CreateServerRequest>,
) -> Result<Response, ApiError> {
    caller.require_role(&WRITERS)?;
    let key = idempotency::idempotency_key(&headers)?;
    let CreateServerRequest { id, provider, base_url, max_concurrent, enabled, repeats_are_safe, reason } = value;
    let reason = reason.check(&caller)?;
    let settings = ServerSettings {
        provider: Some(provider),
        base_url: Some(base_url),
        max_concurrent,
        enabled,
        repeats_are_safe,
    };
    let actor = caller.actor();
    let by = ActionAuthor { actor: &actor, reason: reason.as_deref() };
    let work = async |work: WorkContext| {
        let made = match servers::create_server(&app.bindings, &id, &settings, by).await {
            // An earlier request with this Idempotency-Key created the server, and its answer was lost.
            Err(BindingError::ServerExists(_)) if work.resumed => {
                let made = rows::find_server(&app.core.db, &id).await?;
                let is_same = |row: &ProviderServer| {
                    (Some(&row.provider), Some(&row.base_url))
                        == (settings.provider.as_ref(), settings.base_url.as_ref())
                };
                made.filter(is_same).ok_or_else(|| BindingError::ServerExists(id.clone()))?
            }
            other => other?,
        };
        Ok::<_, ApiError>((StatusCode::CREATED, json!(ServerView::from(made))))
    };
    idempotency::run_once(&app.core.db, &caller, key.as_deref(), &[b"create provider server", &bytes], work).await
}

/// Returns a provider's server.
#[utoipa::path(get, path = "/{id}", tag = "bindings", params(ServerPath), extensions(("x-roles" = json!(READERS))),
    responses((status = 200, description = "success", body = ServerView, example = json!(example_server())), CallErrors))]
async fn show_provider_server(
    State(app): State<App>,
    caller: ApiCaller,
    ServerPath(id): ServerPath,
) -> Result<Json<ServerView>, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let server = rows::find_server(&app.core.db, &id).await?.ok_or(ApiError::NoSuchServer)?;
    Ok(Json(ServerView::from(server)))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PatchServerRequest {
    #[schema(value_type = Option<String>)]
    provider: Option<ProviderName>,
    #[schema(max_length = 500)]
    base_url: Option<String>,
    #[schema(minimum = 1, maximum = 1000)]
    max_concurrent: Option<i32>,
    enabled: Option<bool>,
    repeats_are_safe: Option<bool>,
    /// Reason, kept in the audit record.
    #[serde(default)]
    #[schema(value_type = String, required, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
}

/// Changes a provider's server.
///
/// The host of `base_url` must be listed in `[providers.NAME] hosts` of the configuration. A member that the body omits
/// stays unchanged. A limit applies immediately; calls beyond a lower limit may finish. On a disabled server each
/// binding stops when its next cycle would start.
#[utoipa::path(patch, path = "/{id}", tag = "bindings", params(ServerPath, IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    request_body(content = PatchServerRequest, example = json!({ "max_concurrent": 4, "reason": "acme allows more" })),
    responses(
        (status = 200, description = "success", body = ServerView,
         example = json!(example_server())),
        CallErrors,
    ))]
async fn patch_provider_server(call: KeyedCall<ServerPath, PatchServerRequest>) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: ServerPath(id), value } = call;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&WRITERS)?;
    let PatchServerRequest { provider, base_url, max_concurrent, enabled, repeats_are_safe, reason } = value;
    let reason = reason.check(caller)?;
    let settings = ServerSettings { provider, base_url, max_concurrent, enabled, repeats_are_safe };
    let work = async |_| {
        let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
        let changed = servers::change_server(&app.bindings, &id, &settings, by).await;
        let changed = changed.map_err(|error| match error {
            BindingError::NoServer(_) => ApiError::NoSuchServer,
            other => other.into(),
        })?;
        Ok::<_, ApiError>((StatusCode::OK, json!(ServerView::from(changed))))
    };
    request.run_once("patch provider server", id.as_str().as_bytes(), work).await
}

/// Maximum number of open calls on all servers together.
#[derive(Debug, Serialize, ToSchema)]
struct CallLimitView {
    max_concurrent_calls: u32,
    /// False if the limit is that of the configuration.
    set_by_operator: bool,
}

impl From<TotalLimit> for CallLimitView {
    fn from(limit: TotalLimit) -> Self {
        Self { max_concurrent_calls: limit.max_concurrent_calls, set_by_operator: limit.set_by_operator }
    }
}

/// Returns the limit of open calls on all servers together.
#[utoipa::path(get, path = "/", tag = "bindings", extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = CallLimitView,
         example = json!({ "max_concurrent_calls": 50, "set_by_operator": false })),
        CallErrors,
    ))]
async fn show_call_limit(State(app): State<App>, caller: ApiCaller) -> Result<Json<CallLimitView>, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    Ok(Json(servers::total_limit(&app.bindings).await?.into()))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CallLimitRequest {
    /// Maximum number of open calls; null restores the configured value.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required, minimum = 1, maximum = 100000)]
    max_concurrent_calls: Option<i32>,
    /// Reason, kept in the audit record.
    #[serde(default)]
    #[schema(value_type = String, required, min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: StaffReason,
}

/// Sets the limit of open calls on all servers together.
///
/// It applies immediately; calls beyond a lower limit may finish.
#[utoipa::path(put, path = "/", tag = "bindings", params(IdempotencyHeader), extensions(("x-roles" = json!(WRITERS))),
    request_body(content = CallLimitRequest, example = json!({ "max_concurrent_calls": 60, "reason": "the link was widened" })),
    responses(
        (status = 200, description = "success", body = CallLimitView,
         example = json!({ "max_concurrent_calls": 60, "set_by_operator": true })),
        CallErrors,
    ))]
async fn set_call_limit(
    State(app): State<App>,
    caller: ApiCaller,
    headers: HeaderMap,
    RawBody { bytes, value }: RawBody<CallLimitRequest>,
) -> Result<Response, ApiError> {
    caller.require_role(&WRITERS)?;
    let key = idempotency::idempotency_key(&headers)?;
    let CallLimitRequest { max_concurrent_calls, reason } = value;
    let reason = reason.check(&caller)?;
    let work = async |_| {
        let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
        let limit = servers::change_total_limit(&app.bindings, max_concurrent_calls, by).await?;
        Ok::<_, ApiError>((StatusCode::OK, json!(CallLimitView::from(limit))))
    };
    idempotency::run_once(&app.core.db, &caller, key.as_deref(), &[b"set provider call limit", &bytes], work).await
}
