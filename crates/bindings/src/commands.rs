//! Commands for bindings: create, start, pause, resume, stop, change and delete a binding, and submit an OTP.

use chrono::{DateTime, Utc};
use jobs::BindingId;
use model::{
    actor::Actor,
    binding::{
        AccountId, Binding, BindingCommand, BindingConfig, BindingConflict, BindingState, CommandOutcome,
        OtpSubmission, ServerId, TrxId, decide_command, decide_otp,
    },
};
use serde::Deserialize;
use sqlx::types::Json;

use super::{
    change::{ChangedBinding, change_binding},
    error::BindingError,
};
use crate::{
    capability::Bindings,
    otp_seal::{OtpSealError, PlainOtp},
    store::servers::find_server,
};
use foundation::{
    db::{DatabaseFailure, classify_error},
    staff_actions::ActionAuthor,
};

/// Properties of a binding that is to be created.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewBinding {
    pub id: BindingId,
    pub server_id: ServerId,
    pub account_id: AccountId,
    /// Absent fields take their defaults.
    #[serde(default)]
    pub config: BindingConfig,
}

/// Reserved id: the API uses it for bulk actions, as the path segment where a binding's id would be.
const PATH_OF_MANY: &str = "actions";
/// Reserved id: the engine has no slot with this name.
const NO_SLOT: &str = "-";

/// Creates a binding in state STOPPED. The id of a deleted binding can be used again once its last transaction has been
/// removed.
pub async fn create_binding<'a>(
    bindings: &Bindings,
    new: &NewBinding,
    by: impl Into<ActionAuthor<'a>>,
) -> Result<Binding, BindingError> {
    let by = by.into();
    if new.id.as_str() == PATH_OF_MANY {
        return Err(BindingError::Invalid(format!(
            "'{PATH_OF_MANY}' is not a valid id of a binding: the path /api/v1/bindings/{PATH_OF_MANY} is for bulk actions"
        )));
    }
    if new.id.as_str() == NO_SLOT {
        return Err(BindingError::Invalid(format!("'{NO_SLOT}' is not a valid id of a binding")));
    }
    new.config.check_bounds().map_err(BindingConflict::from)?;
    if find_server(&bindings.core.db, &new.server_id).await?.is_none() {
        return Err(BindingError::NoServer(new.server_id.clone()));
    }
    let created = sqlx::query_scalar::<_, bool>(
        "-- create binding
         WITH b AS (
             INSERT INTO bindings (id, server_id, account_id, config, created_at, updated_at)
             VALUES ($1, $2, $3, $4, dispatchq_now(), dispatchq_now()) ON CONFLICT (id) DO NOTHING
             RETURNING id, created_at),
         e AS (
             INSERT INTO binding_events (binding_id, at, kind, actor, key_id, detail, new_value)
             SELECT id, created_at, 'created', $5, $6, $7,
                    jsonb_build_object('state', 'STOPPED', 'server_id', $2, 'account_id', $3, 'config', $4::jsonb) FROM b)
         SELECT EXISTS (SELECT 1 FROM b)",
    )
    .bind(new.id.as_str())
    .bind(&new.server_id)
    .bind(&new.account_id)
    .bind(Json(&new.config))
    .bind(by.actor.to_string())
    .bind(by.actor.key)
    .bind(by.reason)
    .fetch_one(&bindings.core.db)
    .await;
    let (is_new, is_unknown) = match created {
        Ok(is_new) => (is_new, false),
        Err(error) if classify_error(&error) == DatabaseFailure::OutcomeUnknown => (false, true),
        Err(error) => return Err(error.into()),
    };
    let row = bindings.rows.load_binding(&new.id).await?.map(|loaded| loaded.binding);
    // If the response was lost, a row that has the requested values and was never changed is the one that this call
    // created.
    let is_as_asked = |row: &Binding| {
        (&row.server_id, &row.account_id, &row.config, row.version) == (&new.server_id, &new.account_id, &new.config, 0)
            && row.deleted_at.is_none()
    };
    match row {
        Some(row) if is_new || (is_unknown && is_as_asked(&row)) => Ok(row),
        _ => Err(BindingError::Exists(new.id.clone())),
    }
}

/// Runs a command on a binding. Commands are idempotent.
pub async fn command_binding(
    bindings: &Bindings,
    id: &BindingId,
    command: &BindingCommand,
    actor: &Actor,
) -> Result<ChangedBinding, BindingError> {
    command_with_note(bindings, id, command, actor, None).await
}

/// Same as [`command_binding`], with a note in the binding's history.
pub async fn command_with_note(
    bindings: &Bindings,
    id: &BindingId,
    command: &BindingCommand,
    actor: &Actor,
    note: Option<&str>,
) -> Result<ChangedBinding, BindingError> {
    if let BindingCommand::Patch { server_id: Some(server), .. } = command
        && find_server(&bindings.core.db, server).await?.is_none()
    {
        return Err(BindingError::NoServer(server.clone()));
    }
    change_binding(bindings, id, |loaded| {
        let decided = decide_on_server(&loaded.binding, loaded.server.enabled, command, actor, loaded.now)?;
        Ok(match note {
            Some(note) => decided.with_note(note),
            None => decided,
        })
    })
    .await
}

/// Decides on a command. Start and resume are refused while the server is disabled.
pub fn decide_on_server(
    binding: &Binding,
    is_server_enabled: bool,
    command: &BindingCommand,
    actor: &Actor,
    now: DateTime<Utc>,
) -> Result<CommandOutcome, BindingError> {
    let begins = match command {
        BindingCommand::Start => binding.state == BindingState::Stopped,
        BindingCommand::Resume => binding.state == BindingState::Paused,
        _ => false,
    };
    if begins && !is_server_enabled && binding.deleted_at.is_none() {
        return Err(BindingError::ServerDisabled(binding.server_id.clone()));
    }
    Ok(decide_command(binding, command, actor, now))
}

/// Starts a binding with this configuration, unless it is already running.
pub async fn start_with(
    bindings: &Bindings,
    id: &BindingId,
    config: BindingConfig,
    actor: &Actor,
) -> Result<ChangedBinding, BindingError> {
    let patch = BindingCommand::Patch { server_id: None, config: Some(config) };
    command_binding(bindings, id, &patch, actor).await?;
    command_binding(bindings, id, &BindingCommand::Start, actor).await
}

/// Stores an OTP in encrypted form and enqueues the job that sends it.
pub async fn submit_otp<'a>(
    bindings: &Bindings,
    id: &BindingId,
    trx_id: &TrxId,
    otp: &PlainOtp,
    by: impl Into<ActionAuthor<'a>>,
) -> Result<ChangedBinding, BindingError> {
    let by = by.into();
    let sealed =
        bindings.otps.seal_otp(trx_id, otp).map_err(|error: OtpSealError| BindingError::Invalid(error.to_string()))?;
    let submission = OtpSubmission { trx_id: trx_id.clone(), sealed: sealed.sealed, digest: sealed.digest };
    change_binding(bindings, id, |loaded| {
        // The response to our own write was lost, and the row already has the OTP.
        if loaded.binding.otp_value.as_ref() == Some(&submission.sealed) {
            return Ok(CommandOutcome::NoOp("already stored"));
        }
        let decided = decide_otp(&loaded.binding, &submission, by.actor, loaded.now);
        Ok(match by.reason {
            Some(reason) => decided.with_note(reason),
            None => decided,
        })
    })
    .await
}
