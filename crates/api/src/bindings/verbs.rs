//! Requests that start, pause, resume or stop a binding, and requests that submit an OTP.

use axum::{extract::State, http::HeaderMap, response::Response};
use foundation::core::Core;
use model::binding::{BindingCommand, BindingConflict, BindingEventKind, BindingId, StopReason, TrxId};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{BindingAnswer, WRITERS, answer_with, load_living, paths::BindingPath, views::example_binding};
use crate::{
    auth::ApiCaller,
    body::RawBody,
    error::ApiError,
    idempotency::{self, IdempotencyHeader, WorkContext},
    keyed_call::{KeyedCall, KeyedRequest},
    openapi::CallErrors,
    orders::bounded_text,
    reason::optional_reason,
};
use accounts::api_keys::AccountRole;
use app::App;
use bindings::{
    change::ChangedBinding, commands, error::BindingError, list, otp_seal::PlainOtp, registry::RedisWorkerRegistry,
};
use foundation::staff_actions::ActionAuthor;

/// Roles that submit OTPs. Support is included because the account's owner gives the OTP to support.
const OTP_WRITERS: [AccountRole; 2] = [AccountRole::Operator, AccountRole::Support];
/// Number of events that are searched for a submitted OTP.
const RECENT_EVENTS: i64 = 50;

/// A request whose path names the action. Its body may contain a reason.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct VerbRequest {
    /// Reason, kept in the audit record.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
}

/// A body without members.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmptyBody {}

type VerbCall = KeyedCall<BindingPath, VerbRequest>;

/// Runs a command once per Idempotency-Key. `name` identifies the kind of request. The caller must have checked
/// `reason`.
pub(super) async fn run_command(
    request: KeyedRequest,
    BindingPath(id): BindingPath,
    name: &str,
    command: BindingCommand,
    reason: Option<String>,
) -> Result<Response, ApiError> {
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&WRITERS)?;
    let work = async |_| {
        let registry = RedisWorkerRegistry::new(app.bindings.clone(), caller.actor()).with_reason(reason);
        let changed = registry.command(&id, &command).await.map_err(ApiError::from)?;
        Ok::<_, ApiError>(answer_with(changed))
    };
    request.run_once(name, id.as_str().as_bytes(), work).await
}

/// Starts a binding, which then runs cycle after cycle.
///
/// A binding that already runs stays unchanged. A PAUSED binding must be resumed instead.
#[utoipa::path(post, path = "/{id}/start", tag = "bindings", params(BindingPath, IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    request_body(content = Option<VerbRequest>, example = json!({ "reason": "a trial of the new account" })),
    responses(
        (status = 200, description = "success", body = BindingAnswer,
         example = json!({ "binding": example_binding(), "changed": true, "note": null })),
        CallErrors,
    ))]
pub(super) async fn start_binding(call: VerbCall) -> Result<Response, ApiError> {
    let reason = optional_reason(call.value.reason)?;
    run_command(call.request, call.subject, "start binding", BindingCommand::Start, reason).await
}

/// Pauses a binding.
///
/// It starts no cycle until it is resumed. The open transaction continues until it is final.
#[utoipa::path(post, path = "/{id}/pause", tag = "bindings", params(BindingPath, IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    request_body(content = Option<VerbRequest>, example = json!({ "reason": "a trial of the new account" })),
    responses(
        (status = 200, description = "success", body = BindingAnswer,
         example = json!({ "binding": example_binding(), "changed": true, "note": null })),
        CallErrors,
    ))]
pub(super) async fn pause_binding(call: VerbCall) -> Result<Response, ApiError> {
    let reason = optional_reason(call.value.reason)?;
    run_command(call.request, call.subject, "pause binding", BindingCommand::Pause, reason).await
}

/// Resumes a binding that is PAUSED.
#[utoipa::path(post, path = "/{id}/resume", tag = "bindings", params(BindingPath, IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    request_body(content = Option<VerbRequest>, example = json!({ "reason": "a trial of the new account" })),
    responses(
        (status = 200, description = "success", body = BindingAnswer,
         example = json!({ "binding": example_binding(), "changed": true, "note": null })),
        CallErrors,
    ))]
pub(super) async fn resume_binding(call: VerbCall) -> Result<Response, ApiError> {
    let reason = optional_reason(call.value.reason)?;
    run_command(call.request, call.subject, "resume binding", BindingCommand::Resume, reason).await
}

/// Stop reason that a caller may give. The system sets all others.
#[derive(Debug, Default, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum GivenStopReason {
    #[default]
    ManualStop,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StopRequest {
    #[serde(default)]
    reason: GivenStopReason,
    /// Explanation, kept in the audit record.
    #[schema(max_length = 500, pattern = "^[^\\u0000]*$")]
    note: Option<String>,
}

/// Stops a binding.
///
/// While a call is open, the binding is STOPPING until the call ends. It no longer waits for an OTP.
#[utoipa::path(post, path = "/{id}/stop", tag = "bindings", params(BindingPath, IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    request_body(content = Option<StopRequest>, example = json!({ "reason": "manual_stop" })),
    responses(
        (status = 200, description = "success", body = BindingAnswer,
         example = json!({ "binding": example_binding(), "changed": true, "note": null })),
        CallErrors,
    ))]
pub(super) async fn stop_binding(call: KeyedCall<BindingPath, StopRequest>) -> Result<Response, ApiError> {
    let GivenStopReason::ManualStop = call.value.reason;
    let note = bounded_text("note", call.value.note)?;
    let stop = BindingCommand::Stop { reason: StopReason::ManualStop };
    run_command(call.request, call.subject, "stop binding", stop, note).await
}

/// Has no `Debug`, so that the OTP appears in no log.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OtpRequest {
    /// Transaction that waits for the OTP.
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{1,64}\\.[1-9][0-9]{0,18}$")]
    trx_id: TrxId,
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]+$")]
    otp: String,
    /// Source of the OTP or reason, kept in the audit record. Must not contain the OTP.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
}

/// Submits an OTP.
///
/// The OTP is stored encrypted, sent to the provider immediately, and erased when its outcome is known. The transaction
/// shows the outcome.
#[utoipa::path(post, path = "/{id}/otp", tag = "bindings", params(BindingPath, IdempotencyHeader),
    extensions(("x-roles" = json!(OTP_WRITERS))),
    request_body(content = OtpRequest, example = json!({ "trx_id": "B-7.1", "otp": "123456" })),
    responses(
        (status = 200, description = "success", body = BindingAnswer,
         example = json!({ "binding": example_binding(), "changed": true, "note": null })),
        CallErrors,
    ))]
pub(super) async fn submit_otp(
    State(app): State<App>,
    caller: ApiCaller,
    BindingPath(id): BindingPath,
    headers: HeaderMap,
    RawBody { value: OtpRequest { trx_id, otp, reason }, .. }: RawBody<OtpRequest>,
) -> Result<Response, ApiError> {
    caller.require_role(&OTP_WRITERS)?;
    let key = idempotency::idempotency_key(&headers)?;
    let reason = optional_reason(reason)?;
    let otp = PlainOtp::parse(otp).map_err(|error| ApiError::invalid_member("otp", error.to_string()))?;
    let digest = app
        .bindings
        .otps
        .seal_otp(&trx_id, &otp)
        .map_err(|error| ApiError::invalid_member("otp", error.to_string()))?
        .digest;
    let work = async |work: WorkContext| {
        let by = ActionAuthor { actor: &caller.actor(), reason: reason.as_deref() };
        let stored = commands::submit_otp(&app.bindings, &id, &trx_id, &otp, by).await;
        // An earlier request with this Idempotency-Key may have stored the OTP, and its answer was lost.
        let is_ours = match &stored {
            Err(BindingError::Conflict(why)) if work.resumed => was_handed_in(&app.core, &id, why, &digest).await?,
            _ => false,
        };
        let changed = if is_ours {
            ChangedBinding::No(Box::new(load_living(&app.bindings, &id).await?), "already submitted")
        } else {
            stored.map_err(ApiError::from)?
        };
        Ok::<_, ApiError>(answer_with(changed))
    };
    // The keyed digest replaces the body, because the record of a request must not reveal the OTP.
    let request: [&[u8]; 4] = [b"submit otp", id.as_str().as_bytes(), trx_id.as_str().as_bytes(), digest.as_bytes()];
    idempotency::run_once(&app.core.db, &caller, key.as_deref(), &request, work).await
}

/// Returns whether the history has a submission of the same OTP.
async fn was_handed_in(core: &Core, id: &BindingId, why: &BindingConflict, digest: &str) -> Result<bool, sqlx::Error> {
    if !matches!(why, BindingConflict::OtpStored | BindingConflict::OtpOver | BindingConflict::OtpNotWanted(_)) {
        return Ok(false);
    }
    let kind = BindingEventKind::OtpSubmitted.as_str();
    let events = list::list_events(core, id, RECENT_EVENTS).await?;
    Ok(events.iter().any(|event| event.kind == kind && event.detail.as_deref() == Some(digest)))
}
