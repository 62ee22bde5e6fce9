//! Administration of bindings: `/api/v1/bindings`, `/api/v1/transactions`. docs/BINDINGS.md describes bindings.
//!
//! * `verbs`: start, pause, resume, stop, and OTPs. `patch`: settings. `transactions`: transactions of a binding.
//! * `views`: bodies of answers. `paths`: ids in paths.

mod patch;
pub(crate) mod paths;
mod transactions;
mod verbs;
mod views;

use axum::{
    Json,
    body::Bytes,
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use bindings::capability::Bindings;
use model::binding::{
    AccountId, Binding, BindingCommand, BindingConfig, BindingConflict, BindingId, BindingState, ServerId,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use self::{
    paths::BindingPath,
    views::{BindingView, ConfigSchema, example_binding},
};
pub(crate) use self::{
    verbs::EmptyBody,
    views::{state_or_null_schema, state_schema, word_schema},
};
use super::{
    auth::ApiCaller,
    body::{RawBody, ReasonQuery},
    error::ApiError,
    idempotency::{self, Answer, IdempotencyHeader, WorkContext},
    keyed_call::KeyedRequest,
    openapi::CallErrors,
    reason::{optional_reason, optional_reason_parameter},
};
use accounts::api_keys::AccountRole;
use app::App;
use bindings::{
    change::ChangedBinding,
    commands::{self, NewBinding},
    error::BindingError,
    explain::gather,
    list::{self, BindingFilter},
    registry::RedisWorkerRegistry,
    store::load::UnreadableBinding,
};
use foundation::staff_actions::ActionAuthor;

pub(super) const READERS: [AccountRole; 4] =
    [AccountRole::Viewer, AccountRole::Dispatcher, AccountRole::Support, AccountRole::Operator];
pub(super) const WRITERS: [AccountRole; 1] = [AccountRole::Operator];

const PAGE: u32 = 50;
const LARGEST_PAGE: u32 = 500;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_bindings, create_binding))
        .routes(routes!(show_binding, patch::patch_binding, delete_binding))
        .routes(routes!(verbs::start_binding))
        .routes(routes!(verbs::pause_binding))
        .routes(routes!(verbs::resume_binding))
        .routes(routes!(verbs::stop_binding))
        .routes(routes!(verbs::submit_otp))
        .routes(routes!(transactions::list_transactions))
        .routes(routes!(explain_binding))
}

pub(crate) fn transaction_routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(transactions::show_transaction))
}

/// Returns the page size of a request.
pub(super) fn page_size(limit: Option<u32>) -> Result<u32, ApiError> {
    let limit = limit.unwrap_or(PAGE);
    if (1..=LARGEST_PAGE).contains(&limit) {
        Ok(limit)
    } else {
        Err(ApiError::invalid_parameter("limit", format!("limit must be 1 to {LARGEST_PAGE}")))
    }
}

/// Checks a numeric cursor. Answers contain no negative cursor.
pub(super) fn numbered_cursor(name: &str, cursor: Option<i64>) -> Result<Option<i64>, ApiError> {
    match cursor {
        Some(cursor) if cursor < 0 => Err(ApiError::invalid_parameter(name, format!("{name} must be 0 or more"))),
        cursor => Ok(cursor),
    }
}

/// Returns the cursor of the next page, if this page is full.
pub(super) fn next_cursor<R, C>(rows: &[R], limit: u32, cursor_of: impl Fn(&R) -> C) -> Option<C> {
    let is_full = u32::try_from(rows.len()).is_ok_and(|n| n == limit);
    rows.last().filter(|_| is_full).map(cursor_of)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct BindingListQuery {
    /// Only bindings on this server.
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9_.-]{1,64}$")]
    server_id: Option<ServerId>,
    /// Only bindings of this account.
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9_.-]{1,64}$")]
    account_id: Option<AccountId>,
    /// Only bindings in this state.
    #[param(schema_with = state_schema)]
    state: Option<BindingState>,
    /// The `next_cursor` of the previous page.
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    cursor: Option<BindingId>,
    /// Maximum number of bindings per page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
struct BindingPage {
    bindings: Vec<BindingView>,
    /// Bindings of this page that this version cannot read, because another version wrote them.
    unreadable: Vec<UnreadableView>,
    /// Value of `cursor` for the next page; null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// A binding that this version cannot read.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UnreadableBinding)]
struct UnreadableView {
    id: String,
    /// Reason why it cannot be read.
    error: String,
}

impl From<UnreadableBinding> for UnreadableView {
    fn from(row: UnreadableBinding) -> Self {
        Self { id: row.id, error: row.error }
    }
}

/// Lists bindings by id, page by page.
///
/// Deleted bindings are omitted.
#[utoipa::path(get, path = "/", tag = "bindings", params(BindingListQuery), extensions(("x-roles" = json!(READERS))),
    responses(
        (status = 200, description = "success", body = BindingPage,
         example = json!({ "bindings": [example_binding()], "unreadable": [], "next_cursor": null })),
        CallErrors,
    ))]
async fn list_bindings(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<BindingListQuery>, QueryRejection>,
) -> Result<Json<BindingPage>, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    let Query(BindingListQuery { server_id, account_id, state, cursor, limit }) = wanted?;
    let limit = page_size(limit)?;
    let filter = BindingFilter { server_id, account_id, state };
    let page =
        list::list_bindings(&app.core, &filter, cursor.as_ref().map(BindingId::as_str), i64::from(limit)).await?;
    Ok(Json(BindingPage {
        bindings: page.rows.into_iter().map(BindingView::from).collect(),
        unreadable: page.unreadable.into_iter().map(UnreadableView::from).collect(),
        next_cursor: page.next,
    }))
}

/// A binding to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CreateBindingRequest {
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    id: BindingId,
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_.-]{1,64}$")]
    server_id: ServerId,
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_.-]{1,64}$")]
    account_id: AccountId,
    /// Settings. An omitted setting has its default.
    #[serde(default)]
    #[schema(value_type = ConfigSchema)]
    config: BindingConfig,
    /// Reason, kept in the audit record.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
}

/// Creates a binding in state STOPPED.
#[utoipa::path(post, path = "/", tag = "bindings", params(IdempotencyHeader), extensions(("x-roles" = json!(WRITERS))),
    request_body(content = CreateBindingRequest,
        example = json!({ "id": "B-7", "server_id": "S1", "account_id": "A-1", "config": { "max_failures": 5 } })),
    responses(
        (status = 201, description = "success", body = BindingView,
         example = json!(example_binding())),
        CallErrors,
    ))]
async fn create_binding(
    State(app): State<App>,
    caller: ApiCaller,
    headers: HeaderMap,
    RawBody { bytes, value }: RawBody<CreateBindingRequest>,
) -> Result<Response, ApiError> {
    caller.require_role(&WRITERS)?;
    let key = idempotency::idempotency_key(&headers)?;
    let CreateBindingRequest { id, server_id, account_id, config, reason } = value;
    let reason = optional_reason(reason)?;
    let new = NewBinding { id, server_id, account_id, config };
    let work = async |work: WorkContext| {
        let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
        let made = match commands::create_binding(&app.bindings, &new, by).await {
            // An earlier request with this Idempotency-Key created the binding, and its answer was lost.
            Err(BindingError::Exists(id)) if work.resumed => {
                let made = load_living(&app.bindings, &id).await?;
                if !is_as_asked(&made, &new) {
                    return Err(ApiError::from(BindingError::Exists(id)));
                }
                made
            }
            other => other?,
        };
        Ok((StatusCode::CREATED, json!(BindingView::from(made))))
    };
    idempotency::run_once(&app.core.db, &caller, key.as_deref(), &[b"create binding", &bytes], work).await
}

fn is_as_asked(made: &Binding, new: &NewBinding) -> bool {
    (&made.server_id, &made.account_id, &made.config) == (&new.server_id, &new.account_id, &new.config)
}

/// Returns a binding.
///
/// While Postgres does not answer, a caller whose key is cached gets the copy in Redis, marked `stale: true`.
#[utoipa::path(get, path = "/{id}", tag = "bindings", params(BindingPath), extensions(("x-roles" = json!(READERS))),
    responses((status = 200, description = "success", body = BindingView, example = json!(example_binding())), CallErrors))]
async fn show_binding(
    State(app): State<App>,
    caller: ApiCaller,
    BindingPath(id): BindingPath,
) -> Result<Json<BindingView>, ApiError> {
    caller.require_role(&READERS)?;
    let registry = RedisWorkerRegistry::new(caller.reading(app).bindings.clone(), caller.actor());
    let found = registry.find_binding(&id).await?;
    if found.binding.deleted_at.is_some() {
        return Err(ApiError::BindingRefused(BindingConflict::Deleted));
    }
    let mut view = BindingView::from(found.binding);
    view.stale = found.stale;
    Ok(Json(view))
}

/// Explains the state of a binding, its next job, and the possible actions of staff.
///
/// The answer has `binding`, `why`, `next` (its next job and where the job is), `claim` (the open call), `slots`,
/// `server`, `all_calls`, `to_do`, `events` (latest first) and `redis_error`.
#[utoipa::path(get, path = "/{id}/explain", tag = "bindings", params(BindingPath), extensions(("x-roles" = json!(READERS))),
    responses((status = 200, description = "success", body = Object, example = json!(example_explanation())), CallErrors))]
async fn explain_binding(
    State(app): State<App>,
    caller: ApiCaller,
    BindingPath(id): BindingPath,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&READERS)?;
    let app = caller.reading(app);
    Ok(Json(json!(gather::explain_binding(&app.bindings, &id).await?)))
}

fn example_explanation() -> Value {
    json!({
        "binding": example_binding(), "why": "It waits for its next cycle.",
        "next": { "job": "cycle:B-7:43", "does": "starts the next cycle", "at": "2026-01-09T08:00:00.450Z",
                  "place": { "state": "waiting", "due": "2026-01-09T08:00:00.450Z" } },
        "claim": null, "slots": [],
        "server": { "id": "S1", "provider": "acme", "enabled": true, "is_configured": true, "address_problem": null, "max_concurrent": 2, "failures": 0,
                    "paused_until": null, "slots": { "in_use": 1, "limit": 2, "waiting": 0 } },
        "all_calls": { "in_use": 17, "limit": 50, "waiting": 0 }, "to_do": [], "events": [], "redis_error": null,
    })
}

async fn load_living(bindings: &Bindings, id: &BindingId) -> Result<Binding, ApiError> {
    let loaded = bindings.rows.load_binding(id).await?.ok_or(ApiError::NoSuchBinding)?;
    match loaded.binding.deleted_at {
        None => Ok(loaded.binding),
        Some(_) => Err(ApiError::BindingRefused(BindingConflict::Deleted)),
    }
}

/// Result of a request about a binding.
#[derive(Debug, Serialize, ToSchema)]
struct BindingAnswer {
    binding: BindingView,
    /// False if the binding already was in the requested state.
    changed: bool,
    /// Further information, such as the reason why nothing changed.
    #[schema(required)]
    note: Option<String>,
}

impl From<ChangedBinding> for BindingAnswer {
    fn from(changed: ChangedBinding) -> Self {
        let (binding, changed, note) = match changed {
            ChangedBinding::Yes(binding) => {
                let waits = binding.state == BindingState::Stopping;
                (binding, true, waits.then(|| "the open call ends first".to_owned()))
            }
            ChangedBinding::No(binding, how) => (binding, false, Some(how.to_owned())),
        };
        Self { binding: BindingView::from(*binding), changed, note }
    }
}

/// Returns the answer to a change in the form that is stored under an Idempotency-Key.
fn answer_with(changed: ChangedBinding) -> Answer {
    (StatusCode::OK, json!(BindingAnswer::from(changed)))
}

/// Deletes a binding that is STOPPED and IDLE.
///
/// Its transactions are kept until retention removes them. Until then its id cannot be used again.
#[utoipa::path(delete, path = "/{id}", tag = "bindings", params(BindingPath, ReasonQuery, IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    responses(
        (status = 200, description = "success", body = BindingAnswer,
         example = json!({ "binding": example_binding(), "changed": true, "note": null })),
        CallErrors,
    ))]
async fn delete_binding(
    State(app): State<App>,
    caller: ApiCaller,
    id: BindingPath,
    wanted: Result<Query<ReasonQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    caller.require_role(&WRITERS)?;
    let reason = optional_reason_parameter(wanted?.0.reason)?;
    let key = idempotency::idempotency_key(&headers)?;
    let request = KeyedRequest { app, caller, key, bytes: Bytes::new() };
    verbs::run_command(request, id, "delete binding", BindingCommand::Delete, reason).await
}
