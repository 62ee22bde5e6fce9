//! Copies of bindings in Redis, under the requirement's keys: `wrk:state:{id}`, `wrk:cfg:{id}`, `wrk:lock:{id}`,
//! `wrk:hb:{id}`, and `wrk:cmd`, a stream of commands.
//!
//! Copies are for observers and never judged. They are written after the commit, in the background and many at once, and
//! only by a newer version of the row. The state holds the whole row, too, for readers while Postgres is away. What a person or a rule did to a binding leaves at once, and so does a lone change; of a running
//! binding's calls that follow each other only the last is written. A Redis that is flushed loses them: a rebuild writes those of
//! bindings that have a job, and the others come with the next change of their row.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use jobs::BindingId;
use model::binding::{Binding, BindingChange, BindingEventKind, BindingState};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde_json::json;
use tokio::{sync::Notify, time::timeout};

use foundation::redis_keys;
use queue::{Store, StoreError};

/// Copies of one call.
const COPIES_AT_ONCE: usize = 200;
/// From one round of copies to the next. A claim and its answer are often copied together then.
const REST: Duration = Duration::from_millis(200);
/// Copies that may wait; those above it are dropped, as a Redis that is away drops them.
const MOST_WAITING: usize = 10_000;
/// Commands kept in the stream, or a few more.
const COMMANDS_KEPT: usize = 10_000;

/// Writes copies in one call. For one Redis: in a cluster each key lies in a slot of its own.
///
/// KEYS per binding: state, cfg, lock, hb; last wrk:cmd. ARGV: commands kept, then per binding one JSON.
const COPY_SCRIPT: &str = "
local kept = ARGV[1]
for i = 1, #ARGV - 1 do
  local b, k = cjson.decode(ARGV[i + 1]), 4 * (i - 1)
  local known = redis.call('HGET', KEYS[k + 1], 'version')
  if tonumber(b.version) > tonumber(known or -1) then
    if b.deleted then
      redis.call('DEL', KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4])
    else
      redis.call('HSET', KEYS[k + 1], 'state', b.state, 'reason', b.reason, 'updated_at', b.updated_at, 'version', b.version,
        'owner', b.owner, 'cycle', b.cycle, 'phase', b.phase, 'row', b.row)
      redis.call('HSET', KEYS[k + 2], unpack(b.config))
      if b.lock ~= '' then
        redis.call('SET', KEYS[k + 3], b.lock, 'PX', b.lock_ms)
      else
        redis.call('DEL', KEYS[k + 3])
      end
    end
  end
  for _, c in ipairs(b.commands) do
    redis.call('XADD', KEYS[#KEYS], 'MAXLEN', '~', kept, '*', 'binding_id', b.id, 'command', c.command, 'reason', c.reason,
      'actor', c.actor, 'at', c.at)
  end
end
return 1";

/// In a cluster: the state, and whether the copy is newer than what is there. The scripts after it do as [`COPY_SCRIPT`] does, each for
/// one key. Of two changes at once some keys may keep the earlier one until the next: no one judges by them.
///
/// KEYS: state. ARGV: the JSON. Returns 1 if it was written.
const COPY_STATE: &str = "
local b = cjson.decode(ARGV[1])
if tonumber(b.version) <= tonumber(redis.call('HGET', KEYS[1], 'version') or -1) then return 0 end
if b.deleted then
  redis.call('DEL', KEYS[1])
else
  redis.call('HSET', KEYS[1], 'state', b.state, 'reason', b.reason, 'updated_at', b.updated_at, 'version', b.version,
    'owner', b.owner, 'cycle', b.cycle, 'phase', b.phase, 'row', b.row)
end
return 1";

/// KEYS: cfg. ARGV: the JSON.
const COPY_CONFIG: &str = "
local b = cjson.decode(ARGV[1])
if b.deleted then return redis.call('DEL', KEYS[1]) end
return redis.call('HSET', KEYS[1], unpack(b.config))";

/// KEYS: lock. ARGV: the JSON.
const COPY_LOCK: &str = "
local b = cjson.decode(ARGV[1])
if b.deleted or b.lock == '' then return redis.call('DEL', KEYS[1]) end
redis.call('SET', KEYS[1], b.lock, 'PX', b.lock_ms)
return 1";

/// Removes the heartbeat of a deleted binding.
///
/// KEYS: hb. ARGV: the JSON.
const COPY_DELETION: &str = "
local b = cjson.decode(ARGV[1])
if b.deleted then return redis.call('DEL', KEYS[1]) end
return 0";

/// Writes heartbeats: the time of each in ms.
///
/// KEYS: hb of each binding. ARGV: the times. BOUND: the number of keys.
const WRITE_HEARTBEATS: &str = "
for i = 1, #KEYS do redis.call('SET', KEYS[i], ARGV[i]) end
return #KEYS";

/// KEYS: wrk:cmd. ARGV: the JSON, commands kept. Returns how many were added.
const COPY_COMMANDS: &str = "
local b = cjson.decode(ARGV[1])
for _, c in ipairs(b.commands) do
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'binding_id', b.id, 'command', c.command, 'reason', c.reason,
    'actor', c.actor, 'at', c.at)
end
return #b.commands";

/// Writes the copies. Cheap to clone.
#[derive(Debug, Clone)]
pub struct BindingMirror(Arc<MirrorQueue>);

#[derive(Debug)]
struct MirrorQueue {
    store: Store,
    waiting: Mutex<WaitingCopies>,
    /// Something waits that is not to wait for the next round.
    hurried: Notify,
}

/// When a worker was last at work on a binding, in ms.
type Heartbeat = (BindingId, i64);

#[derive(Debug, Default)]
struct WaitingCopies {
    copies: HashMap<BindingId, BindingCopy>,
    /// Heartbeats of workers, in ms.
    heartbeats: HashMap<BindingId, i64>,
    /// A task is writing them.
    is_writing: bool,
}

/// What Redis is told of a binding.
#[derive(Debug, Clone)]
struct BindingCopy {
    row: Binding,
    /// Who made the change.
    owner: String,
    commands: Vec<CopiedCommand>,
}

/// What was asked of a binding.
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

    /// Has the copy of a changed binding written, soon or never. `owner` made the change.
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

    /// Has the copies of these rows written that Redis lacks.
    pub fn copy_rows(&self, rows: &[Binding]) {
        for row in rows {
            self.post_copy(BindingCopy { row: row.clone(), owner: String::new(), commands: Vec::new() });
        }
    }

    /// Has a worker's heartbeat written, soon or never. `at` is the time by Postgres' clock.
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

    /// Writes round after round until nothing waits.
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

    /// `None`: nothing waits, and the task ends.
    fn take_round(&self) -> Option<(Vec<BindingCopy>, Vec<Heartbeat>)> {
        let mut waiting = self.lock_waiting();
        waiting.is_writing = !(waiting.copies.is_empty() && waiting.heartbeats.is_empty());
        let copies = waiting.copies.drain().map(|(_, copy)| copy).collect();
        let heartbeats = waiting.heartbeats.drain().collect();
        waiting.is_writing.then_some((copies, heartbeats))
    }
}

impl BindingCopy {
    /// Whether observers wait for it: something was done to the binding, or nothing more will happen to it by itself.
    fn is_urgent(&self) -> bool {
        !self.commands.is_empty() || self.row.state != BindingState::Running || self.row.deleted_at.is_some()
    }

    /// Another change of the same binding, which may be an earlier one, or a copy of what waits already.
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

/// Field, value, field, value: as HSET takes them.
fn config_fields(row: &Binding) -> Vec<String> {
    let fields = serde_json::to_value(&row.config).unwrap_or_default();
    let fields = fields.as_object().cloned().unwrap_or_default();
    let text = |value: serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    fields.into_iter().flat_map(|(name, value)| [name, text(value)]).collect()
}

/// The seed's word for what was done to a binding.
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
    // In a cluster each key lies in a slot of its own.
    let at_once = if store.is_cluster() { 1 } else { heartbeats.len().max(1) };
    for some in heartbeats.chunks(at_once) {
        let mut command = redis::cmd("EVAL");
        command.arg(WRITE_HEARTBEATS).arg(some.len());
        some.iter().for_each(|(id, _)| _ = command.arg(heartbeat_key(id)));
        some.iter().for_each(|(_, at)| _ = command.arg(*at));
        if let Err(error) = store.run_across_slots::<redis::Value>("heartbeats of bindings", &command).await {
            tracing::debug!(%error, "Heartbeats of bindings could not be written.");
            return;
        }
    }
}

async fn write_at_once(store: &Store, copies: &[BindingCopy]) -> Result<(), StoreError> {
    let mut command = redis::cmd("EVAL");
    command.arg(COPY_SCRIPT).arg(4 * copies.len() + 1);
    for copy in copies {
        for key in redis_keys::binding_copies(&copy.row.id) {
            command.arg(key);
        }
    }
    command.arg(redis_keys::BINDING_COMMANDS).arg(COMMANDS_KEPT);
    for copy in copies {
        command.arg(copy.to_json());
    }
    store.run_across_slots::<redis::Value>("copy bindings", &command).await.map(drop)
}

async fn write_key_by_key(store: &Store, copies: &[BindingCopy]) -> Result<(), StoreError> {
    for copy in copies {
        let [state, config, lock, heartbeat] = redis_keys::binding_copies(&copy.row.id);
        let values = copy.to_json();
        copy_key(store, COPY_COMMANDS, redis_keys::BINDING_COMMANDS, &values).await?;
        if copy_key(store, COPY_STATE, &state, &values).await? == 0 {
            continue;
        }
        copy_key(store, COPY_CONFIG, &config, &values).await?;
        copy_key(store, COPY_LOCK, &lock, &values).await?;
        copy_key(store, COPY_DELETION, &heartbeat, &values).await?;
    }
    Ok(())
}

async fn copy_key(store: &Store, script: &str, key: &str, values: &str) -> Result<i64, StoreError> {
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(1).arg(key).arg(values).arg(COMMANDS_KEPT);
    store.run_command("copy binding", &command).await
}
