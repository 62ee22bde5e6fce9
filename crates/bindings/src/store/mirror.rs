//! Copies of bindings in Redis, under the keys that the requirement prescribes: `wrk:state:{id}`, `wrk:cfg:{id}`,
//! `wrk:lock:{id}`, `wrk:hb:{id}`, and `wrk:cmd`, a stream of commands.
//!
//! Copies are for observers; decisions never use them. They are written in the background after the commit, many at
//! once, and only replace older versions. The state also contains the whole row, for readers while Postgres is
//! unavailable. Changes by a person or a rule, and single changes, are copied immediately. If calls of a running
//! binding follow each other quickly, only the last one is copied.
//!
//! A flush of Redis removes the copies. A rebuild writes the copies of bindings that have a job; the others are written
//! with the next change to their row.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use jobs::BindingId;
use model::binding::{Binding, BindingChange, BindingEventKind, BindingState};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde_json::json;
use tokio::{sync::Notify, time::timeout};

use foundation::redis_keys;
use queue::{LuaScript, Store, StoreError};

/// Maximum number of copies in one command.
const COPIES_AT_ONCE: usize = 200;
/// Pause between two rounds of copies. A claim and its answer often fall into the same pause and are then copied
/// together.
const REST: Duration = Duration::from_millis(200);
/// Maximum number of copies that wait. Further copies are dropped.
const MOST_WAITING: usize = 10_000;
/// Approximate number of commands kept in the stream.
const COMMANDS_KEPT: usize = 10_000;

static COPY_SCRIPT: LuaScript = LuaScript::new(include_str!("scripts/copy_bindings.lua"));

static COPY_STATE: LuaScript = LuaScript::new(include_str!("scripts/copy_state.lua"));

static COPY_CONFIG: LuaScript = LuaScript::new(include_str!("scripts/copy_config.lua"));

static COPY_LOCK: LuaScript = LuaScript::new(include_str!("scripts/copy_lock.lua"));

static COPY_DELETION: LuaScript = LuaScript::new(include_str!("scripts/copy_deletion.lua"));

static WRITE_HEARTBEATS: LuaScript = LuaScript::new(include_str!("scripts/write_heartbeats.lua"));

static COPY_COMMANDS: LuaScript = LuaScript::new(include_str!("scripts/copy_commands.lua"));

/// Writes the copies. Cheap to clone.
#[derive(Debug, Clone)]
pub struct BindingMirror(Arc<MirrorQueue>);

#[derive(Debug)]
struct MirrorQueue {
    store: Store,
    waiting: Mutex<WaitingCopies>,
    /// Signals that a copy must be written before the next round.
    hurried: Notify,
}

/// Time of a worker's latest heartbeat for a binding, in ms.
type Heartbeat = (BindingId, i64);

#[derive(Debug, Default)]
struct WaitingCopies {
    copies: HashMap<BindingId, BindingCopy>,
    /// Heartbeats of workers, in ms.
    heartbeats: HashMap<BindingId, i64>,
    /// Whether a task is writing copies.
    is_writing: bool,
}

#[derive(Debug, Clone)]
struct BindingCopy {
    row: Binding,
    /// Owner of the write that made the change.
    owner: String,
    commands: Vec<CopiedCommand>,
}

/// A command that was given to a binding.
#[derive(Debug, Clone, Serialize)]
struct CopiedCommand {
    command: &'static str,
    reason: &'static str,
    actor: String,
    at: i64,
}

impl BindingMirror {
    pub fn new(store: &Store) -> Self {
        Self(Arc::new(MirrorQueue { store: store.clone(), waiting: Mutex::default(), hurried: Notify::new() }))
    }

    /// Enqueues the copy of a changed binding. Drops it if too many copies wait. `owner` is the owner of the write.
    pub fn copy_change(&self, change: &BindingChange, after: &Binding, owner: &str) {
        let words = change.events.iter().filter_map(|event| command_word(event.kind));
        let command = |command| CopiedCommand {
            command,
            reason: reason_word(after),
            actor: change.actor.to_string(),
            at: after.updated_at.timestamp_millis(),
        };
        let commands = words.map(command).collect();
        self.post_copy(BindingCopy { row: after.clone(), owner: owner.to_owned(), commands });
    }

    /// Enqueues copies of these rows. A copy that is not newer than the one in Redis is skipped.
    pub fn copy_rows(&self, rows: &[Binding]) {
        for row in rows {
            self.post_copy(BindingCopy { row: row.clone(), owner: String::new(), commands: Vec::new() });
        }
    }

    /// Enqueues the time of a worker's heartbeat, on Postgres' clock. Drops it if too many heartbeats wait.
    pub fn copy_heartbeat(&self, id: &BindingId, at: DateTime<Utc>) {
        let mut waiting = self.0.lock_waiting();
        if waiting.heartbeats.len() < MOST_WAITING || waiting.heartbeats.contains_key(id) {
            waiting.heartbeats.insert(id.clone(), at.timestamp_millis());
        }
        let is_writing = std::mem::replace(&mut waiting.is_writing, true);
        drop(waiting);
        if !is_writing {
            tokio::spawn(self.0.clone().write_rounds());
        }
    }

    fn post_copy(&self, copy: BindingCopy) {
        let is_urgent = copy.is_urgent();
        let mut waiting = self.0.lock_waiting();
        let has_room = waiting.copies.len() < MOST_WAITING;
        match waiting.copies.get_mut(&copy.row.id) {
            Some(known) => known.follow_up(copy),
            None if has_room => {
                waiting.copies.insert(copy.row.id.clone(), copy);
            }
            None => {}
        }
        let is_due = is_urgent || waiting.copies.len() >= COPIES_AT_ONCE;
        let is_writing = std::mem::replace(&mut waiting.is_writing, true);
        drop(waiting);
        if is_due {
            self.0.hurried.notify_one();
        }
        if !is_writing {
            tokio::spawn(self.0.clone().write_rounds());
        }
    }
}

impl MirrorQueue {
    fn lock_waiting(&self) -> MutexGuard<'_, WaitingCopies> {
        self.waiting.lock()
    }

    /// Writes rounds of copies until none are waiting.
    async fn write_rounds(self: Arc<Self>) {
        while let Some((copies, heartbeats)) = self.take_round() {
            for some in copies.chunks(COPIES_AT_ONCE) {
                write_copies(&self.store, some).await;
            }
            for some in heartbeats.chunks(COPIES_AT_ONCE) {
                write_heartbeats(&self.store, some).await;
            }
            let _ = timeout(REST, self.hurried.notified()).await;
        }
    }

    /// Takes all waiting copies. Returns `None` if there are none, and the task ends.
    fn take_round(&self) -> Option<(Vec<BindingCopy>, Vec<Heartbeat>)> {
        let mut waiting = self.lock_waiting();
        waiting.is_writing = !(waiting.copies.is_empty() && waiting.heartbeats.is_empty());
        let copies = waiting.copies.drain().map(|(_, copy)| copy).collect();
        let heartbeats = waiting.heartbeats.drain().collect();
        waiting.is_writing.then_some((copies, heartbeats))
    }
}

impl BindingCopy {
    /// Returns whether the copy is written immediately: a command was given, or the binding will not change without a
    /// command.
    fn is_urgent(&self) -> bool {
        !self.commands.is_empty() || self.row.state != BindingState::Running || self.row.deleted_at.is_some()
    }

    /// Merges another copy of the same binding. The other copy may be older than this one or have the same version.
    fn follow_up(&mut self, mut next: Self) {
        if next.row.version <= self.row.version {
            std::mem::swap(self, &mut next);
        }
        let earlier = std::mem::replace(self, next);
        self.commands.splice(0..0, earlier.commands);
    }

    fn to_json(&self) -> String {
        let Self { row, owner, commands } = self;
        let open_for = row.call_until.map(|until| (until - row.updated_at).num_milliseconds().max(1));
        let lock = if open_for.is_some() { format!("{owner} {}", row.version) } else { String::new() };
        let values = json!({
            "id": row.id,
            "version": row.version,
            "state": row.state.as_str(),
            "reason": reason_word(row),
            "updated_at": row.updated_at.timestamp_millis(),
            "config": config_fields(row),
            "lock": lock,
            "lock_ms": open_for.unwrap_or(1),
            "owner": owner,
            "cycle": row.cycle,
            "phase": row.phase.as_str(),
            "row": serde_json::to_string(row).unwrap_or_default(),
            "deleted": row.deleted_at.is_some(),
            "commands": commands,
        });
        values.to_string()
    }
}

fn reason_word(row: &Binding) -> &'static str {
    row.reason.map_or("", model::binding::StopReason::as_str)
}

/// Returns the configuration as the alternating fields and values of HSET.
fn config_fields(row: &Binding) -> Vec<String> {
    let fields = serde_json::to_value(&row.config).unwrap_or_default();
    let fields = fields.as_object().cloned().unwrap_or_default();
    let text = |value: serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    fields.into_iter().flat_map(|(name, value)| [name, text(value)]).collect()
}

/// Returns the requirement's word for a command.
fn command_word(kind: BindingEventKind) -> Option<&'static str> {
    match kind {
        BindingEventKind::Started => Some("start"),
        BindingEventKind::Paused => Some("pause"),
        BindingEventKind::Resumed => Some("resume"),
        BindingEventKind::Stopping | BindingEventKind::Stopped => Some("stop"),
        _ => None,
    }
}

async fn write_copies(store: &Store, copies: &[BindingCopy]) {
    let written =
        if store.is_cluster() { write_key_by_key(store, copies).await } else { write_at_once(store, copies).await };
    if let Err(error) = written {
        tracing::debug!(%error, "Copies of bindings could not be written.");
    }
}

async fn write_heartbeats(store: &Store, heartbeats: &[Heartbeat]) {
    let heartbeat_key = |id: &BindingId| {
        let [_, _, _, key] = redis_keys::binding_copies(id);
        key
    };
    // In a cluster each key is in its own slot.
    let at_once = if store.is_cluster() { 1 } else { heartbeats.len().max(1) };
    for some in heartbeats.chunks(at_once) {
        let mut command = WRITE_HEARTBEATS.call(some.iter().map(|(id, _)| heartbeat_key(id)));
        some.iter().for_each(|(_, at)| _ = command.arg(*at));
        if let Err(error) = store.run_across_slots::<redis::Value>("heartbeats of bindings", &command).await {
            tracing::debug!(%error, "Heartbeats of bindings could not be written.");
            return;
        }
    }
}

async fn write_at_once(store: &Store, copies: &[BindingCopy]) -> Result<(), StoreError> {
    let copied = copies.iter().flat_map(|copy| redis_keys::binding_copies(&copy.row.id));
    let mut command = COPY_SCRIPT.call(copied.chain([redis_keys::BINDING_COMMANDS.to_owned()]));
    command.arg(COMMANDS_KEPT);
    for copy in copies {
        command.arg(copy.to_json());
    }
    store.run_across_slots::<redis::Value>("copy bindings", &command).await.map(drop)
}

async fn write_key_by_key(store: &Store, copies: &[BindingCopy]) -> Result<(), StoreError> {
    for copy in copies {
        let [state, config, lock, heartbeat] = redis_keys::binding_copies(&copy.row.id);
        let values = copy.to_json();
        copy_key(store, &COPY_COMMANDS, redis_keys::BINDING_COMMANDS, &values).await?;
        if copy_key(store, &COPY_STATE, &state, &values).await? == 0 {
            continue;
        }
        copy_key(store, &COPY_CONFIG, &config, &values).await?;
        copy_key(store, &COPY_LOCK, &lock, &values).await?;
        copy_key(store, &COPY_DELETION, &heartbeat, &values).await?;
    }
    Ok(())
}

async fn copy_key(store: &Store, script: &'static LuaScript, key: &str, values: &str) -> Result<i64, StoreError> {
    let mut command = script.call([key]);
    command.arg(values).arg(COMMANDS_KEPT);
    store.run_command("copy binding", &command).await
}
