//! [`Store`], the handle for all calls, and what the calls share.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use redis::{FromRedisValue, RedisError, Value};
use tokio::sync::broadcast;

use super::{
    address::RedisConfig,
    command::{self, RedisCall},
    connect::{self, RedisConnection},
    ended_permits::EndedPermits,
    error::StoreError,
    hash_slot,
    release_queue::SlotReleases,
    script::{NamedScript, ScriptCall},
};
use crate::{
    job::{NewJob, round_up_ms},
    keys::Keys,
};

/// Number of keys that one `SCAN` call examines.
const SCANNED: usize = 1_000;

/// Clock that the scripts use.
#[derive(Debug, Clone, Default)]
pub enum ScriptClock {
    /// Redis' own clock. The clocks of workers do not matter.
    #[default]
    Redis,
    /// Time set by the caller, in milliseconds. For tests only, which set the time instead of sleeping.
    Fixed(Arc<AtomicU64>),
}

/// The queue's data in Redis. Cheap to clone; clones share one connection.
#[derive(Clone)]
pub struct Store {
    connection: Arc<RedisConnection>,
    config: Arc<RedisConfig>,
    shard: u16,
    pub(super) keys: Arc<Keys>,
    clock: ScriptClock,
    pub(super) releases: Arc<SlotReleases>,
    pub(super) ended_permits: Arc<EndedPermits>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("address", &self.connection.address).field("clock", &self.clock).finish()
    }
}

impl Store {
    /// Connects. Fails at once when Redis cannot be reached or refuses the login.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let store = Self::connect_lazy(url)?;
        store.ping().await?;
        Ok(store)
    }

    /// Creates a store that connects with its first call, for processes that must start while Redis is down. Fails only
    /// on an invalid address. Must be called inside a tokio runtime.
    pub fn connect_lazy(url: &str) -> Result<Self, StoreError> {
        Self::with_config(RedisConfig::new(url))
    }

    /// Creates a store as [`connect_lazy`](Self::connect_lazy) does, with other timeouts.
    pub fn with_config(config: RedisConfig) -> Result<Self, StoreError> {
        Self::of_shard(config, 0)
    }

    /// Creates a store as [`with_config`](Self::with_config) does, for one of several shards. Each shard has its own
    /// connection, so an unreachable shard does not delay the others.
    pub fn of_shard(config: RedisConfig, shard: u16) -> Result<Self, StoreError> {
        let keys = Keys::of_shard(shard);
        let connection = connect::connect_lazily(&config, hash_slot::key_slot(keys.epoch().as_bytes()))?;
        Ok(Self {
            connection: Arc::new(connection),
            config: Arc::new(config),
            shard,
            keys: Arc::new(keys),
            clock: ScriptClock::Redis,
            releases: Arc::default(),
            ended_permits: Arc::default(),
        })
    }

    /// Returns another shard of the same Redis, with the same clock and its own connection.
    pub fn other_shard(&self, shard: u16) -> Result<Self, StoreError> {
        Ok(Self::of_shard((*self.config).clone(), shard)?.with_clock(self.clock.clone()))
    }

    /// Sets the clock of the scripts. For tests only.
    #[must_use]
    pub fn with_clock(self, clock: ScriptClock) -> Self {
        Self { clock, ..self }
    }

    /// Returns the address for messages: host and port, or the sentinels and the primary's name, or some nodes of the
    /// cluster.
    pub fn address(&self) -> &str {
        &self.connection.address
    }

    pub fn shard(&self) -> u16 {
        self.shard
    }

    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Measures the round trip of one PING.
    pub async fn ping(&self) -> Result<Duration, StoreError> {
        let start = Instant::now();
        let _: Value = self.run_query("ping", &redis::cmd("PING")).await?;
        Ok(start.elapsed())
    }

    /// Subscribes to wake messages. Each message is the name of a queue whose first job is due earlier than before.
    pub(crate) async fn subscribe_wakes(&self) -> Result<broadcast::Receiver<String>, StoreError> {
        let receiver = self.connection.wakes.subscribe();
        let subscribed = self.connection.subscribe(self.keys.wake_channel()).await;
        subscribed.map_err(|error| self.call_error("subscribe", &error))?;
        Ok(receiver)
    }

    /// Wakes the workers of a queue.
    pub(super) async fn publish_wake(&self, queue: &str) -> Result<(), StoreError> {
        let publish = if self.connection.is_cluster() { "SPUBLISH" } else { "PUBLISH" };
        let _: Value = self.run_query("wake", redis::cmd(publish).arg(self.keys.wake_channel()).arg(queue)).await?;
        Ok(())
    }

    /// Returns the `now_ms` argument of every script.
    pub(super) fn now_arg(&self) -> String {
        match &self.clock {
            ScriptClock::Redis => String::new(),
            ScriptClock::Fixed(now_ms) => now_ms.load(Ordering::SeqCst).to_string(),
        }
    }

    /// Returns the time of Redis' clock, in ms.
    pub async fn now_ms(&self) -> Result<u64, StoreError> {
        Ok(self.now_us().await? / 1000)
    }

    /// Returns the time as [`now_ms`](Self::now_ms) does, but rounded up, so that a due time computed from it is never
    /// early.
    pub async fn now_ms_rounded_up(&self) -> Result<u64, StoreError> {
        Ok(self.now_us().await?.div_ceil(1000))
    }

    async fn now_us(&self) -> Result<u64, StoreError> {
        match &self.clock {
            ScriptClock::Redis => {
                let (secs, micros): (u64, u64) = self.run_query("time", &redis::cmd("TIME")).await?;
                Ok(secs * 1_000_000 + micros)
            }
            ScriptClock::Fixed(now_ms) => Ok(now_ms.load(Ordering::SeqCst) * 1000),
        }
    }

    /// Starts a call of a script for these queues, with the leading arguments that all such scripts share.
    pub(super) fn job_script<'a>(
        &self,
        script: &'static NamedScript,
        queues: impl IntoIterator<Item = &'a str>,
    ) -> ScriptCall {
        let mut keys = self.keys.script_keys(queues);
        let mut call = if self.connection.is_cluster() {
            keys.push(self.keys.never());
            script.with_slot_keys(&keys)
        } else {
            script.with_keys(&keys)
        };
        call.push_arg(self.now_arg()).push_arg(self.keys.wake_channel());
        call
    }

    /// Returns whether this is a cluster. A cluster refuses a command whose keys are in several slots.
    pub fn is_cluster(&self) -> bool {
        self.connection.is_cluster()
    }

    /// Runs a plain command over the queue's connection, for data other than the queue's. `name` is for error messages.
    ///
    /// # Panics
    ///
    /// Panics in debug builds if the keys of the command are in several slots, even without a cluster. So each test of
    /// a caller checks this.
    pub async fn run_command<T: FromRedisValue>(
        &self,
        name: &'static str,
        call: &impl RedisCall,
    ) -> Result<T, StoreError> {
        debug_assert!(
            hash_slot::slots_of(call.cmd()).len() < 2,
            "'{name}' has keys in several slots, which a cluster refuses"
        );
        self.run_query(name, call).await
    }

    /// Runs a command as [`run_command`](Self::run_command) does, but with keys in several slots. Not for a cluster.
    pub async fn run_across_slots<T: FromRedisValue>(
        &self,
        name: &'static str,
        call: &impl RedisCall,
    ) -> Result<T, StoreError> {
        self.run_query(name, call).await
    }

    /// Returns the keys of a type, such as `zset`, that match a pattern, from every server of a cluster. A key that is
    /// created or removed during the scan may be missing.
    pub async fn find_keys(&self, pattern: &str, kind: &str) -> Result<BTreeSet<String>, StoreError> {
        let mut found = BTreeSet::new();
        let servers = self.connection.for_each_server().await.map_err(|error| self.call_error("scan", &error))?;
        for mut server in servers {
            let mut cursor = 0_u64;
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCANNED).arg("TYPE").arg(kind);
                let begun = Instant::now();
                let answer = tokio::time::timeout(self.config.response_timeout, scan.query_async(&mut server)).await;
                let (next, keys): (u64, Vec<String>) = self.answer_in_time("scan", begun, answer)?;
                found.extend(keys);
                if next == 0 {
                    break;
                }
                cursor = next;
            }
        }
        Ok(found)
    }

    /// Runs a plain command that a caller waits for.
    pub(super) async fn run_query<T: FromRedisValue>(
        &self,
        name: &'static str,
        call: &impl RedisCall,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        let answer = async {
            let mut connection = self.connection.for_slot(|| hash_slot::slot_of(call.cmd())).await?;
            T::from_redis_value(command::run_call(call, &mut connection).await?).map_err(RedisError::from)
        };
        let answer = tokio::time::timeout(self.config.response_timeout, answer).await;
        self.answer_in_time(name, begun, answer)
    }

    /// Runs a script that a caller waits for.
    pub(super) async fn run_script<T: FromRedisValue>(&self, call: &ScriptCall) -> Result<T, StoreError> {
        let begun = Instant::now();
        let answer = async { call.invoke(&mut self.connection.for_queue().await?).await };
        let answer = tokio::time::timeout(self.config.response_timeout, answer).await;
        let value = self.answer_in_time(call.script.name, begun, answer)?;
        T::from_redis_value(value).map_err(|error| StoreError::invalid_answer(call.script.name, error))
    }

    /// Runs an idempotent script that a caller waits for. Retries once if the connection broke.
    pub(super) async fn run_idempotent<T: FromRedisValue>(&self, call: &ScriptCall) -> Result<T, StoreError> {
        match self.run_script(call).await {
            Err(StoreError::Unreachable { .. }) => self.run_script(call).await,
            answer => answer,
        }
    }

    /// Runs a script with the longer timeout of a worker: see [`RedisConfig::worker_timeout`].
    pub(super) async fn run_patiently<T: FromRedisValue>(&self, call: &ScriptCall) -> Result<T, StoreError> {
        let begun = Instant::now();
        let answer = async { call.invoke(&mut self.connection.for_queue().await?).await };
        let value = self.record_contact(call.script.name, begun, answer.await)?;
        T::from_redis_value(value).map_err(|error| StoreError::invalid_answer(call.script.name, error))
    }

    fn answer_in_time<T>(
        &self,
        call: &'static str,
        begun: Instant,
        answer: Result<redis::RedisResult<T>, tokio::time::error::Elapsed>,
    ) -> Result<T, StoreError> {
        match answer {
            Ok(answer) => self.record_contact(call, begun, answer),
            Err(_) => {
                self.connection.replace_if_silent(begun);
                Err(StoreError::Slow {
                    address: self.connection.address.clone(),
                    call,
                    secs: self.config.response_timeout.as_secs(),
                })
            }
        }
    }

    /// Records whether the server answered a call.
    fn record_contact<T>(
        &self,
        call: &'static str,
        begun: Instant,
        answer: redis::RedisResult<T>,
    ) -> Result<T, StoreError> {
        match &answer {
            Err(error) if error.is_timeout() => self.connection.replace_if_silent(begun),
            Err(error) if error.is_io_error() => {}
            _ => self.connection.record_answer(),
        }
        answer.map_err(|error| self.call_error(call, &error))
    }

    fn call_error(&self, call: &'static str, error: &redis::RedisError) -> StoreError {
        self.connection.record_failure(error);
        match StoreError::new(&self.connection.address, call, error) {
            StoreError::ClusterNode { address } if self.connection.is_cluster() => StoreError::SlotMoving { address },
            error => error,
        }
    }
}

/// Queues of a batch, numbered from 1 in the order of their first use. The arguments of scripts contain these numbers.
#[derive(Debug, Default)]
pub(super) struct QueueNumbers(Vec<&'static str>);

impl QueueNumbers {
    pub(super) fn number_of(&mut self, queue: &'static str) -> usize {
        let position = self.0.iter().position(|known| *known == queue);
        position.map_or_else(
            || {
                self.0.push(queue);
                self.0.len()
            },
            |position| position + 1,
        )
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().copied()
    }
}

/// Adds the arguments for a job to insert.
pub(super) fn push_job(call: &mut ScriptCall, queues: &mut QueueNumbers, job: &NewJob) {
    call.push_arg(queues.number_of(job.queue))
        .push_arg(job.id.as_str())
        .push_arg(job.delay_ms())
        .push_arg(encode_envelope(job));
}

/// Returns the envelope that Redis stores: the slots and the payload of a job. Empty for a job with neither. The slots
/// come first, because take.lua reads them there. Their names need no JSON escapes.
pub(super) fn encode_envelope(job: &NewJob) -> String {
    let slots = job.slots.as_ref().map(|need| {
        let (group, own, hold_ms) = (need.group(), need.own(), round_up_ms(need.hold()));
        format!(r#""slots":"{group} {own} {hold_ms}""#)
    });
    let payload = job.payload.as_ref().map(|payload| format!(r#""payload":{payload}"#));
    let said: Vec<String> = [slots, payload].into_iter().flatten().collect();
    if said.is_empty() { String::new() } else { format!(r#"{{"v":1,{}}}"#, said.join(",")) }
}
