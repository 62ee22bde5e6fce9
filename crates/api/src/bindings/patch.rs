//! Settings of a binding, changed one by one.

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
    /// Another server; only while the binding is STOPPED and IDLE.
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_.-]{1,64}$")]
    server_id: Option<ServerId>,
    /// What is left out stays as it is.
    #[schema(value_type = Option<ConfigSchema>)]
    config: Option<Map<String, Value>>,
    /// Why; for the audit.
    #[schema(min_length = 1, max_length = 500, pattern = "^[^\\u0000]*$")]
    reason: Option<String>,
}

/// Changes the settings of a binding, or its server.
///
/// Settings hold from the next step on; what the body leaves out stays as it is.
#[utoipa::path(patch, path = "/{id}", tag = "bindings", params(BindingPath, IdempotencyHeader),
    extensions(("x-roles" = json!(WRITERS))),
    request_body(content = PatchBindingRequest, example = json!({ "config": { "interval_ms": [500, 1000] } })),
    responses(
        (status = 200, description = "done", body = BindingAnswer,
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

/// The settings with those changed that are named.
fn merge_settings(current: &BindingConfig, named: &Map<String, Value>) -> Result<BindingConfig, BindingError> {
    let mut merged = json!(current);
    for (name, value) in named {
        merged[name] = value.clone();
    }
    serde_json::from_value(merged)
        .map_err(|error| BindingError::Invalid(format!("config: {}", plain_error(&error.to_string()))))
}
