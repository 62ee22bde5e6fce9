//! Outbox messages, their deliveries, and replay of dead ones: `/api/v1/admin/outbox`.

use axum::{
    Json,
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
    http::{HeaderMap, StatusCode},
    response::Response,
};
use foundation::core::Core;
use jobs::{BindingId, OrderId};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, openapi::Object};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    ActionRequest, OPERATORS,
    examples::{example_message, example_messages, example_replayed_message},
};
use crate::{
    auth::ApiCaller,
    bindings::{next_cursor, numbered_cursor, page_size, word_schema},
    body::RawBody,
    error::{ApiError, StaffError},
    idempotency::{self, IdempotencyHeader, WorkContext},
    openapi::CallErrors,
    orders::bounded_parameter,
};
use app::App;
use desk::dead_letters::{
    decide::DecisionAuthor,
    redeliver::{self, OutboxFilter, OutboxMessage},
};
use foundation::error::ServiceError;
use model::messages::OutboxState;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(routes!(list_messages))
        .routes(routes!(show_message))
        .routes(routes!(replay_message))
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WantedMessageState {
    Pending,
    Delivered,
    Expired,
    Dead,
}

impl From<WantedMessageState> for OutboxState {
    fn from(state: WantedMessageState) -> Self {
        match state {
            WantedMessageState::Pending => Self::Pending,
            WantedMessageState::Delivered => Self::Delivered,
            WantedMessageState::Expired => Self::Expired,
            WantedMessageState::Dead => Self::Dead,
        }
    }
}

fn state_schema() -> Object {
    word_schema(["pending", "delivered", "expired", "dead"])
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OutboxListQuery {
    /// Only messages in this state.
    #[param(schema_with = state_schema)]
    state: Option<WantedMessageState>,
    /// Only messages over this channel.
    channel: Option<String>,
    /// Only messages of this kind, such as MANUAL_REFUND_REQUIRED.
    kind: Option<String>,
    /// Only messages about this order.
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    order_id: Option<OrderId>,
    /// Only messages about this binding.
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    binding_id: Option<BindingId>,
    /// The `next_cursor` of the previous page.
    #[param(minimum = 0)]
    cursor: Option<i64>,
    /// Maximum number of messages per page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u32>,
}

/// Lists messages, newest first, page by page.
///
/// Each of the `messages` has id, subject, kind, channel, state, number of tries, last error, and times. `next_cursor`
/// is null on the last page.
#[utoipa::path(get, path = "/", tag = "admin", params(OutboxListQuery), extensions(("x-roles" = json!(OPERATORS))),
    responses((status = 200, description = "success", body = Object, example = json!(example_messages())), CallErrors))]
async fn list_messages(
    State(app): State<App>,
    caller: ApiCaller,
    wanted: Result<Query<OutboxListQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    let Query(wanted) = wanted?;
    let limit = page_size(wanted.limit)?;
    let filter = OutboxFilter {
        state: wanted.state.map(OutboxState::from),
        channel: bounded_parameter("channel", wanted.channel)?,
        kind: bounded_parameter("kind", wanted.kind)?,
        order: wanted.order_id,
        binding: wanted.binding_id,
        before: numbered_cursor("cursor", wanted.cursor)?,
        limit,
        ..OutboxFilter::default()
    };
    let rows = redeliver::list_messages(&app.core.db, &filter).await?;
    let next_cursor = next_cursor(&rows, limit, |row| row.id);
    Ok(Json(json!({ "messages": rows, "next_cursor": next_cursor })))
}

async fn find_message(core: &Core, id: i64) -> Result<OutboxMessage, ApiError> {
    let filter = OutboxFilter { ids: Some(vec![id]), limit: 1, ..OutboxFilter::default() };
    let found = redeliver::list_messages(&core.db, &filter).await?;
    Ok(found.into_iter().next().ok_or(StaffError::NoSuchMessage)?)
}

/// Returns a message and its delivery log.
#[utoipa::path(get, path = "/{id}", tag = "admin", extensions(("x-roles" = json!(OPERATORS))),
    params(("id" = i64, Path, description = "the message's id", example = 1)),
    responses((status = 200, description = "success", body = Object, example = json!(example_message())), CallErrors))]
async fn show_message(
    State(app): State<App>,
    caller: ApiCaller,
    id: Result<Path<i64>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    caller.require_role(&OPERATORS)?;
    let Path(id) = id.map_err(|_| StaffError::NoSuchMessage)?;
    let message = find_message(&app.core, id).await?;
    let log = redeliver::load_delivery_log(&app.core.db, id).await?;
    Ok(Json(json!({ "message": message, "log": log })))
}

/// Sends a dead message again.
///
/// It keeps its id and gets the lifetime of a new message.
#[utoipa::path(post, path = "/{id}/replay", tag = "admin", extensions(("x-roles" = json!(OPERATORS))),
    params(("id" = i64, Path, description = "the message's id", example = 1), IdempotencyHeader),
    request_body(content = ActionRequest, example = json!({ "reason": "Slack is back" })),
    responses(
        (status = 200, description = "success", body = Object,
         example = json!(example_replayed_message())),
        CallErrors,
    ))]
async fn replay_message(
    State(app): State<App>,
    caller: ApiCaller,
    id: Result<Path<i64>, PathRejection>,
    headers: HeaderMap,
    RawBody { bytes, value: ActionRequest { reason } }: RawBody<ActionRequest>,
) -> Result<Response, ApiError> {
    caller.require_role(&OPERATORS)?;
    let Path(id) = id.map_err(|_| StaffError::NoSuchMessage)?;
    let by = DecisionAuthor { who: caller.actor(), why: reason.check(&caller)? };
    let key = idempotency::idempotency_key(&headers)?;
    let work = async |work: WorkContext| {
        let message = find_message(&app.core, id).await?;
        let is_sent = match redeliver::replay_message(&app.desk, &message, &by).await {
            // The message stays dead: it was delivered in the meantime, or no driver can still answer its offer.
            Err(ServiceError::Unusable(_)) => false,
            replayed => replayed?,
        };
        // An earlier request with this Idempotency-Key sent the message, and its answer was lost.
        if !is_sent && !work.resumed {
            return Err(ApiError::from(StaffError::MessageNotDead));
        }
        Ok((StatusCode::OK, json!({ "message": find_message(&app.core, id).await? })))
    };
    let request: [&[u8]; 3] = [b"replay message", &id.to_be_bytes(), &bytes];
    idempotency::run_once(&app.core.db, &caller, key.as_deref(), &request, work).await
}
