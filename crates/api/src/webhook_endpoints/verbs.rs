//! Requests that test, rotate, pause, resume or replay a webhook endpoint.

use std::time::Duration;

use axum::{
    Json,
    extract::State,
    http::{StatusCode, header::CACHE_CONTROL},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    OWNERS, SecretAnswer, actions,
    requests::{EndpointPath, check_reason, owner_of},
    views::{EndpointView, NewEndpointView, example_endpoint, example_new_endpoint},
};
use crate::{auth::ApiCaller, body::JsonBody, error::ApiError, openapi::CallErrors};
use app::App;
use foundation::staff_actions::ActionAuthor;
use notify::endpoints::EndpointState;
use orders::feed::FeedCursor;

/// Default time in seconds that the old secret also signs.
const OVERLAP_SEC: u32 = 86_400;
/// Maximum time in seconds that the old secret also signs: 30 days.
const LONGEST_OVERLAP_SEC: u32 = 2_592_000;

/// A request whose path names the action.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EndpointVerb {
    /// Reason, kept in the audit record. Required for staff.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
}

/// A test event that is on its way.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EndpointTest)]
pub(super) struct TestView {
    /// Id of the event, as in `webhook-id`.
    event_id: Uuid,
}

/// Sends one signed event of type `endpoint.test`.
///
/// It is retried like any other event, and listed in the deliveries. A paused endpoint gets it after the endpoint is
/// resumed.
#[utoipa::path(post, path = "/{id}/test", tag = "webhook-endpoints", params(EndpointPath), extensions(("x-roles" = json!(OWNERS))),
    request_body(content = EndpointVerb, example = json!({ "reason": "a first try" })),
    responses(
        (status = 202, description = "the event is sent soon", body = TestView,
         example = json!({ "event_id": "019ba1c0-0000-7000-8000-000000000002" })),
        CallErrors,
    ))]
pub(super) async fn test_webhook_endpoint(
    State(app): State<App>,
    caller: ApiCaller,
    EndpointPath(id): EndpointPath,
    JsonBody(EndpointVerb { reason }): JsonBody<EndpointVerb>,
) -> Result<(StatusCode, Json<TestView>), ApiError> {
    caller.require_role(&OWNERS)?;
    let reason = check_reason(&caller, reason)?;
    let actor = caller.actor();
    let by = ActionAuthor { actor: &actor, reason: reason.as_deref() };
    let event_id = actions::test(&app, &id, owner_of(&actor), by).await?;
    Ok((StatusCode::ACCEPTED, Json(TestView { event_id })))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RotateSecretRequest {
    /// Seconds that the old secret also signs. Default: one day.
    #[schema(minimum = 0, maximum = 2592000)]
    overlap_sec: Option<u32>,
    /// Reason, kept in the audit record. Required for staff.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
}

/// Replaces the secret of a webhook endpoint.
///
/// During the overlap both secrets sign, so that the receiver can change to the new one. A further rotation ends the
/// overlap of the one before.
#[utoipa::path(post, path = "/{id}/rotate", tag = "webhook-endpoints", params(EndpointPath), extensions(("x-roles" = json!(OWNERS))),
    request_body(content = RotateSecretRequest, example = json!({ "overlap_sec": 3600, "reason": "the secret was in a log" })),
    responses(
        (status = 200, description = "success", body = NewEndpointView, example = json!(example_new_endpoint())),
        CallErrors,
    ))]
pub(super) async fn rotate_webhook_secret(
    State(app): State<App>,
    caller: ApiCaller,
    EndpointPath(id): EndpointPath,
    JsonBody(RotateSecretRequest { overlap_sec, reason }): JsonBody<RotateSecretRequest>,
) -> Result<SecretAnswer, ApiError> {
    caller.require_role(&OWNERS)?;
    let reason = check_reason(&caller, reason)?;
    let overlap_sec = overlap_sec.unwrap_or(OVERLAP_SEC);
    if overlap_sec > LONGEST_OVERLAP_SEC {
        let rule = format!("overlap_sec must be 0 to {LONGEST_OVERLAP_SEC}");
        return Err(ApiError::invalid_member("overlap_sec", rule));
    }
    let actor = caller.actor();
    let by = ActionAuthor { actor: &actor, reason: reason.as_deref() };
    let overlap = Duration::from_secs(overlap_sec.into());
    let rotated = actions::rotate(&app, &id, owner_of(&actor), overlap, by).await?;
    Ok((StatusCode::OK, [(CACHE_CONTROL, "no-store")], Json(rotated.into())))
}

/// Pauses a webhook endpoint.
///
/// Events that happen during the pause are not sent. `paused_after` is the cursor from which a replay sends them.
#[utoipa::path(post, path = "/{id}/pause", tag = "webhook-endpoints", params(EndpointPath), extensions(("x-roles" = json!(OWNERS))),
    request_body(content = EndpointVerb, example = json!({ "reason": "the shop is being moved" })),
    responses((status = 200, description = "success", body = EndpointView, example = json!(example_endpoint())), CallErrors))]
pub(super) async fn pause_webhook_endpoint(
    State(app): State<App>,
    caller: ApiCaller,
    EndpointPath(id): EndpointPath,
    JsonBody(EndpointVerb { reason }): JsonBody<EndpointVerb>,
) -> Result<Json<EndpointView>, ApiError> {
    set_state(&app, &caller, &id, EndpointState::Paused, reason).await
}

/// Resumes a webhook endpoint.
///
/// Later events are sent. Events of the pause are sent by a replay.
#[utoipa::path(post, path = "/{id}/resume", tag = "webhook-endpoints", params(EndpointPath), extensions(("x-roles" = json!(OWNERS))),
    request_body(content = EndpointVerb, example = json!({ "reason": "the shop was moved" })),
    responses((status = 200, description = "success", body = EndpointView, example = json!(example_endpoint())), CallErrors))]
pub(super) async fn resume_webhook_endpoint(
    State(app): State<App>,
    caller: ApiCaller,
    EndpointPath(id): EndpointPath,
    JsonBody(EndpointVerb { reason }): JsonBody<EndpointVerb>,
) -> Result<Json<EndpointView>, ApiError> {
    set_state(&app, &caller, &id, EndpointState::Active, reason).await
}

async fn set_state(
    app: &App,
    caller: &ApiCaller,
    id: &str,
    state: EndpointState,
    reason: Option<String>,
) -> Result<Json<EndpointView>, ApiError> {
    caller.require_role(&OWNERS)?;
    let reason = check_reason(caller, reason)?;
    let actor = caller.actor();
    let by = ActionAuthor { actor: &actor, reason: reason.as_deref() };
    Ok(Json(actions::set_state(app, id, owner_of(&actor), state, by).await?.into()))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplayRequest {
    /// Cursor of the stream: `next` of an answer of `GET /api/v1/events`, or `paused_after` of the endpoint.
    #[schema(pattern = "^[0-9]{1,20}-[0-9]{1,19}$")]
    after: String,
    /// Reason, kept in the audit record. Required for staff.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
}

/// A replay that runs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EndpointReplay)]
pub(super) struct ReplayView {
    after: String,
}

/// Sends the events after a cursor again.
///
/// It starts after a few seconds, and sends the events up to that time. An event that the endpoint got before keeps its
/// id. A further request while a replay runs continues from the earlier of both cursors.
#[utoipa::path(post, path = "/{id}/replay", tag = "webhook-endpoints", params(EndpointPath), extensions(("x-roles" = json!(OWNERS))),
    request_body(content = ReplayRequest, example = json!({ "after": "0-0", "reason": "the shop lost a day" })),
    responses(
        (status = 202, description = "the events are sent soon", body = ReplayView, example = json!({ "after": "0-0" })),
        CallErrors,
    ))]
pub(super) async fn replay_webhook_events(
    State(app): State<App>,
    caller: ApiCaller,
    EndpointPath(id): EndpointPath,
    JsonBody(ReplayRequest { after, reason }): JsonBody<ReplayRequest>,
) -> Result<(StatusCode, Json<ReplayView>), ApiError> {
    caller.require_role(&OWNERS)?;
    let reason = check_reason(&caller, reason)?;
    let cursor: FeedCursor = after
        .parse()
        .map_err(|_| ApiError::invalid_member("after", "after must be `next` of an answer of GET /api/v1/events"))?;
    let actor = caller.actor();
    let by = ActionAuthor { actor: &actor, reason: reason.as_deref() };
    actions::replay(&app, &id, owner_of(&actor), cursor, by).await?;
    Ok((StatusCode::ACCEPTED, Json(ReplayView { after: cursor.to_string() })))
}
