//! Worker contract of the requirement (seeds: "High Throughput Orchestration Plan" §4), implemented with rows in
//! Postgres and copies in Redis.
//!
//! The API, the command line, the console and the workers use it. Verbs change the row, which decides; `get_state`
//! reads it. The lock is the claim in the row, which a worker writes with its call. Only the claim keeps a second
//! worker away. docs/requirements/orchestration.md lists the differences from the requirement and their reasons.

use std::time::Duration;

use chrono::{DateTime, Utc};
use jobs::BindingId;
use model::{
    actor::Actor,
    binding::{Binding, BindingCommand, BindingConfig, BindingState, StopReason},
};
use serde::Serialize;

use super::{change::ChangedBinding, commands, error::BindingError};
use crate::capability::Bindings;
use foundation::{error::ServiceError, redis_keys};

/// State of a binding's worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkerState {
    pub state: String,
    pub reason: Option<String>,
    pub updated_at: DateTime<Utc>,
    /// Whether this is the copy in Redis, which may be outdated. It is used when Postgres does not respond.
    pub stale: bool,
}

/// Heartbeat of a worker that handles a binding. The worker's name and the phase of the cycle are in the copy of the
/// row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatPayload {
    /// Time on Postgres' clock.
    pub at: DateTime<Utc>,
}

/// A binding from Postgres or from its copy.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundBinding {
    pub binding: Binding,
    /// Whether this is the copy in Redis, which may be outdated. It is used when Postgres does not respond.
    pub stale: bool,
}

/// The contract. Each verb returns whether it changed something.
#[allow(async_fn_in_trait, reason = "the futures need no bounds beyond their users' own")]
pub trait WorkerRegistry {
    async fn start(&self, binding_id: &BindingId, config: BindingConfig) -> Result<bool, BindingError>;
    async fn pause(&self, binding_id: &BindingId) -> Result<bool, BindingError>;
    async fn resume(&self, binding_id: &BindingId) -> Result<bool, BindingError>;
    async fn stop(&self, binding_id: &BindingId, reason: StopReason) -> Result<bool, BindingError>;
    async fn get_state(&self, binding_id: &BindingId) -> Result<WorkerState, BindingError>;
    /// Returns whether the owner has the lock, that is, whether the row's open call is the owner's. A claim is written
    /// with its call and ends at the call's time, so `ttl` is not used.
    async fn acquire_lock(&self, binding_id: &BindingId, owner: &str, ttl: Duration) -> Result<bool, ServiceError>;
    /// Returns whether the owner still has the lock. A claim is not extended, because the provider already knows the
    /// call's end.
    async fn refresh_lock(&self, binding_id: &BindingId, owner: &str, ttl: Duration) -> Result<bool, ServiceError>;
    /// Returns whether the owner does not have the lock, and releases nothing. The write of the answer to its call
    /// ends a claim.
    async fn release_lock(&self, binding_id: &BindingId, owner: &str) -> Result<bool, ServiceError>;
    async fn heartbeat(&self, binding_id: &BindingId, payload: &HeartbeatPayload) -> Result<(), ServiceError>;
}

/// Implementation of the contract on this installation's servers.
#[derive(Debug, Clone)]
pub struct RedisWorkerRegistry {
    bindings: Bindings,
    /// Actor recorded as the author of the changes.
    actor: Actor,
    /// Reason that a person gave for the request.
    reason: Option<String>,
}

impl RedisWorkerRegistry {
    pub fn new(bindings: Bindings, actor: Actor) -> Self {
        Self { bindings, actor, reason: None }
    }

    /// Adds the reason that a person gave.
    #[must_use]
    pub fn with_reason(mut self, reason: Option<String>) -> Self {
        self.reason = reason;
        self
    }

    /// Runs a command on a binding. Commands are idempotent.
    pub async fn command(&self, id: &BindingId, command: &BindingCommand) -> Result<ChangedBinding, BindingError> {
        commands::command_with_note(&self.bindings, id, command, &self.actor, self.reason.as_deref()).await
    }

    async fn changes(&self, id: &BindingId, command: BindingCommand) -> Result<bool, BindingError> {
        Ok(self.command(id, &command).await?.has_changed())
    }

    /// Returns the row of a binding, or its copy in Redis while Postgres does not respond.
    pub async fn find_binding(&self, id: &BindingId) -> Result<FoundBinding, BindingError> {
        match self.bindings.rows.load_binding(id).await {
            Ok(Some(loaded)) => Ok(FoundBinding { binding: loaded.binding, stale: false }),
            Ok(None) => Err(BindingError::NotFound(id.clone())),
            Err(error) => {
                let copied = self.copied_row(id).await;
                copied.map(|binding| FoundBinding { binding, stale: true }).ok_or(BindingError::Batch(error))
            }
        }
    }

    async fn copied_row(&self, id: &BindingId) -> Option<Binding> {
        let [state_key, ..] = redis_keys::binding_copies(id);
        let mut command = redis::cmd("HGET");
        command.arg(state_key).arg("row");
        let row: Option<String> = self.bindings.core.query_optional("copy of a binding", &command).await.ok()?;
        serde_json::from_str(&row?).ok().filter(|row: &Binding| row.id == *id)
    }

    /// Returns the owner of the open call from the record of its claim.
    async fn claim_owner(&self, id: &BindingId) -> Result<Option<String>, ServiceError> {
        let owner: Option<Option<String>> = sqlx::query_scalar(
            "-- owner of the open claim
             SELECT c.owner FROM bindings b
             JOIN transaction_snapshots c
               ON c.binding_id = b.id AND c.cycle = split_part(b.trx_id, '.', 2)::bigint AND c.call_no = b.call_no
              AND c.part = 'claim'
             WHERE b.id = $1 AND b.phase = 'CALLING' AND b.call_until > dispatchq_now()",
        )
        .bind(id.as_str())
        .fetch_optional(&self.bindings.core.db)
        .await?;
        Ok(owner.flatten())
    }

    /// Returns the copy of the state from Redis; used while Postgres does not respond.
    async fn copied_state(&self, id: &BindingId) -> Option<WorkerState> {
        let [state_key, ..] = redis_keys::binding_copies(id);
        let mut command = redis::cmd("HMGET");
        command.arg(state_key).arg("state").arg("reason").arg("updated_at");
        let copied: (Option<String>, Option<String>, Option<i64>) =
            self.bindings.core.query_optional("state of a binding", &command).await.ok()?;
        Some(WorkerState {
            state: copied.0?,
            reason: copied.1.filter(|reason| !reason.is_empty()),
            updated_at: DateTime::from_timestamp_millis(copied.2?)?,
            stale: true,
        })
    }
}

impl WorkerRegistry for RedisWorkerRegistry {
    async fn start(&self, binding_id: &BindingId, config: BindingConfig) -> Result<bool, BindingError> {
        let started = commands::start_with(&self.bindings, binding_id, config, &self.actor).await?;
        Ok(ChangedBinding::has_changed(&started))
    }

    async fn pause(&self, binding_id: &BindingId) -> Result<bool, BindingError> {
        self.changes(binding_id, BindingCommand::Pause).await
    }

    async fn resume(&self, binding_id: &BindingId) -> Result<bool, BindingError> {
        self.changes(binding_id, BindingCommand::Resume).await
    }

    async fn stop(&self, binding_id: &BindingId, reason: StopReason) -> Result<bool, BindingError> {
        self.changes(binding_id, BindingCommand::Stop { reason }).await
    }

    async fn get_state(&self, binding_id: &BindingId) -> Result<WorkerState, BindingError> {
        match self.bindings.rows.load_binding(binding_id).await {
            Ok(Some(loaded)) if loaded.binding.deleted_at.is_none() => Ok(WorkerState {
                state: BindingState::as_str(loaded.binding.state).to_owned(),
                reason: loaded.binding.reason.map(|reason| reason.to_string()),
                updated_at: loaded.binding.updated_at,
                stale: false,
            }),
            Ok(_) => Err(BindingError::NotFound(binding_id.clone())),
            Err(error) => self.copied_state(binding_id).await.ok_or(BindingError::Batch(error)),
        }
    }

    async fn acquire_lock(&self, binding_id: &BindingId, owner: &str, _ttl: Duration) -> Result<bool, ServiceError> {
        Ok(self.claim_owner(binding_id).await?.as_deref() == Some(owner))
    }

    async fn refresh_lock(&self, binding_id: &BindingId, owner: &str, ttl: Duration) -> Result<bool, ServiceError> {
        self.acquire_lock(binding_id, owner, ttl).await
    }

    async fn release_lock(&self, binding_id: &BindingId, owner: &str) -> Result<bool, ServiceError> {
        Ok(self.claim_owner(binding_id).await?.as_deref() != Some(owner))
    }

    async fn heartbeat(&self, binding_id: &BindingId, payload: &HeartbeatPayload) -> Result<(), ServiceError> {
        self.bindings.mirror.copy_heartbeat(binding_id, payload.at);
        Ok(())
    }
}
