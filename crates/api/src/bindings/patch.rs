//! Changes of a binding's settings.

use axum::response::Response;
use model::{
    binding::{BindingCommand, BindingConfig, ServerId, decide_command},
    json_words::plain_error,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::{
    BindingAnswer, WRITERS, answer_with,
    paths::BindingPath,
    views::{ConfigSchema, example_binding},
};
use crate::{
    error::ApiError,
    idempotency::IdempotencyHeader,
    keyed_call::{KeyedCall, KeyedRequest},
    openapi::CallErrors,
    reason::optional_reason,
};
use bindings::{change::change_binding, error::BindingError, store::servers};

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PatchBindingRequest {
    /// New server. The binding must be STOPPED and IDLE.
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_.-]{1,64}$")]
    server_id: Option<ServerId>,
    /// Settings to change. An omitted setting stays unchanged.
    #[schema(value_type = Option<ConfigSchema>)]
    config: Option<Map<String, Value>>,
    /// Reason, kept in the audit record.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
}

/// Changes the settings or the server of a binding.
///
/// Settings apply from the next step. A member that the body omits stays unchanged.
#[utoipa::path(patch, path = "/{id}", tag = "bindings", params(BindingPath, IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    request_body(content = PatchBindingRequest, example = json!({ "config": { "interval_ms": [500, 1000] } })),
    responses(
        (status = 200, description = "success", body = BindingAnswer,
         example = json!({ "binding": example_binding(), "changed": true, "note": null })),
        CallErrors,
    ))]
pub(super) async fn patch_binding(call: KeyedCall<BindingPath, PatchBindingRequest>) -> Result<Response, ApiError> {
    let KeyedCall { request, subject: BindingPath(id), value } = call;
    let PatchBindingRequest { server_id, config: settings, reason } = value;
    let KeyedRequest { app, caller, .. } = &request;
    caller.require_role(&WRITERS)?;
    let reason = optional_reason(reason)?;
    let work = async |_| {
        if let Some(server) = &server_id
            && servers::find_server(&app.core.db, server).await?.is_none()
        {
            return Err(ApiError::from(BindingError::NoServer(server.clone())));
        }
        let actor = caller.actor();
        let changed = change_binding(&app.bindings, &id, |loaded| {
            let config = settings.as_ref().map(|named| merge_settings(&loaded.binding.config, named)).transpose()?;
            let patch = BindingCommand::Patch { server_id: server_id.clone(), config };
            let decided = decide_command(&loaded.binding, &patch, &actor, loaded.now);
            Ok(match &reason {
                Some(reason) => decided.with_note(reason),
                None => decided,
            })
        });
        Ok(answer_with(changed.await?))
    };
    request.run_once("patch binding", id.as_str().as_bytes(), work).await
}

/// Returns the settings with the named ones replaced.
fn merge_settings(current: &BindingConfig, named: &Map<String, Value>) -> Result<BindingConfig, BindingError> {
    let mut merged = json!(current);
    for (name, value) in named {
        merged[name] = value.clone();
    }
    serde_json::from_value(merged)
        .map_err(|error| BindingError::Invalid(format!("config: {}", plain_error(&error.to_string()))))
}
