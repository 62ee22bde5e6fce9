//! The requirement's contract of workers (seeds: "High Throughput Orchestration Plan" §4), over rows and copies.
//!
//! Verbs change the row, which decides; `get_state` reads it. The lock and the heartbeat are copies for observers: what keeps
//! a second worker away is the claim in the row.

use std::time::Duration;

use chrono::{DateTime, Utc};
use jobs::BindingId;
use model::{
    actor::Actor,
    binding::{BindingCommand, BindingConfig, BindingPhase, BindingState, StopReason},
};
use redis::Value;
use serde::Serialize;

use super::{
    change::{BindingError, ChangedBinding},
    commands,
};
use crate::{app::App, error::ServiceError, redis_keys};

/// How a binding's worker stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkerState {
    pub state: String,
    pub reason: Option<String>,
    pub updated_at: DateTime<Utc>,
    /// Postgres could not be asked: this is the copy in Redis, which may be old.
    pub stale: bool,
}

/// What a worker says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatPayload {
    pub owner: String,
    pub cycle: i64,
    pub phase: BindingPhase,
}

/// The contract. Verbs answer whether they changed something.
#[allow(async_fn_in_trait, reason = "the futures need no bounds beyond their users' own")]
pub trait WorkerRegistry {
    async fn start(&self, binding_id: &BindingId, config: BindingConfig) -> Result<bool, BindingError>;
    async fn pause(&self, binding_id: &BindingId) -> Result<bool, BindingError>;
    async fn resume(&self, binding_id: &BindingId) -> Result<bool, BindingError>;
    async fn stop(&self, binding_id: &BindingId, reason: StopReason) -> Result<bool, BindingError>;
    async fn get_state(&self, binding_id: &BindingId) -> Result<WorkerState, BindingError>;
    /// Takes the lock if it is free. Ends by itself after `ttl`.
    async fn acquire_lock(&self, binding_id: &BindingId, owner: &str, ttl: Duration) -> Result<bool, ServiceError>;
    /// Lets the owner's lock last `ttl` from now.
    async fn refresh_lock(&self, binding_id: &BindingId, owner: &str, ttl: Duration) -> Result<bool, ServiceError>;
    async fn release_lock(&self, binding_id: &BindingId, owner: &str) -> Result<bool, ServiceError>;
    async fn heartbeat(&self, binding_id: &BindingId, payload: &HeartbeatPayload) -> Result<(), ServiceError>;
}

/// The contract on this installation's servers.
#[derive(Debug, Clone)]
pub struct RedisWorkerRegistry {
    app: App,
    /// In whose name the verbs are recorded.
    actor: Actor,
}

impl RedisWorkerRegistry {
    pub fn new(app: App, actor: Actor) -> Self {
        Self { app, actor }
    }

    async fn command(&self, id: &BindingId, command: BindingCommand) -> Result<bool, BindingError> {
        let changed = commands::command_binding(&self.app, id, &command, &self.actor).await?;
        Ok(changed.has_changed())
    }

    /// The copy of the state, while Postgres cannot be asked.
    async fn copied_state(&self, id: &BindingId) -> Option<WorkerState> {
        let [state_key, ..] = redis_keys::binding_copies(id);
        let mut command = redis::cmd("HMGET");
        command.arg(state_key).arg("state").arg("reason").arg("updated_at");
        let copied: (Option<String>, Option<String>, Option<i64>) =
            self.app.query_optional("state of a binding", &command).await.ok()?;
        Some(WorkerState {
            state: copied.0?,
            reason: copied.1.filter(|reason| !reason.is_empty()),
            updated_at: DateTime::from_timestamp_millis(copied.2?)?,
            stale: true,
        })
    }

    /// Runs a script on the lock, whose value is `owner` or `owner fence`.
    async fn on_lock(&self, id: &BindingId, owner: &str, ttl: Duration, then: &str) -> Result<bool, ServiceError> {
        let [_, _, lock_key, _] = redis_keys::binding_copies(id);
        let script = format!(
            "local held = redis.call('GET', KEYS[1])
             local owner = held and string.match(held, '^%S*')
             {then}"
        );
        let mut command = redis::cmd("EVAL");
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1);
        command.arg(script).arg(1).arg(lock_key).arg(owner).arg(ttl_ms);
        Ok(self.app.store.run_command::<i64>("lock of a binding", &command).await? == 1)
    }
}

impl WorkerRegistry for RedisWorkerRegistry {
    async fn start(&self, binding_id: &BindingId, config: BindingConfig) -> Result<bool, BindingError> {
        let started = commands::start_with(&self.app, binding_id, config, &self.actor).await?;
        Ok(ChangedBinding::has_changed(&started))
    }

    async fn pause(&self, binding_id: &BindingId) -> Result<bool, BindingError> {
        self.command(binding_id, BindingCommand::Pause).await
    }

    async fn resume(&self, binding_id: &BindingId) -> Result<bool, BindingError> {
        self.command(binding_id, BindingCommand::Resume).await
    }

    async fn stop(&self, binding_id: &BindingId, reason: StopReason) -> Result<bool, BindingError> {
        self.command(binding_id, BindingCommand::Stop { reason }).await
    }

    async fn get_state(&self, binding_id: &BindingId) -> Result<WorkerState, BindingError> {
        match self.app.bindings.load_binding(binding_id).await {
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

    async fn acquire_lock(&self, binding_id: &BindingId, owner: &str, ttl: Duration) -> Result<bool, ServiceError> {
        let take = "if held and owner ~= ARGV[1] then return 0 end
                    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
                    return 1";
        self.on_lock(binding_id, owner, ttl, take).await
    }

    async fn refresh_lock(&self, binding_id: &BindingId, owner: &str, ttl: Duration) -> Result<bool, ServiceError> {
        let extend = "if owner ~= ARGV[1] then return 0 end
                      return redis.call('PEXPIRE', KEYS[1], ARGV[2])";
        self.on_lock(binding_id, owner, ttl, extend).await
    }

    async fn release_lock(&self, binding_id: &BindingId, owner: &str) -> Result<bool, ServiceError> {
        let release = "if owner ~= ARGV[1] then return 0 end
                       return redis.call('DEL', KEYS[1])";
        self.on_lock(binding_id, owner, Duration::from_millis(1), release).await
    }

    async fn heartbeat(&self, binding_id: &BindingId, payload: &HeartbeatPayload) -> Result<(), ServiceError> {
        let [_, _, _, heartbeat_key] = redis_keys::binding_copies(binding_id);
        let now_ms = self.app.store.now_ms().await?;
        let mut command = redis::cmd("HSET");
        command.arg(heartbeat_key).arg("at").arg(now_ms).arg("owner").arg(&payload.owner);
        command.arg("cycle").arg(payload.cycle).arg("phase").arg(payload.phase.as_str());
        self.app.store.run_command::<Value>("heartbeat of a binding", &command).await?;
        Ok(())
    }
}
