//! One Redis per test, a clock set by hand, and example jobs.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use queue::{
    DecodeError, Job, JobAddress, JobId, LeaseToken, LeasedJob, NewJob, Outcome, RedisConfig, RetryPolicy, ScriptClock,
    SettleRequest, Store,
    store::{DeadJob, JobDetail, LeaseEnd, TakeAnswer, TakeMode, TakeRequest},
};
use redis::{AsyncConnectionConfig, FromRedisValue, aio::MultiplexedConnection};
use serde_json::Value;
use servers::RedisServer;

pub(crate) const QUEUE: &str = "timers";
pub(crate) const OTHER: &str = "others";
pub(crate) const LEASE: Duration = Duration::from_secs(8);
/// Timeout for answers that are not the subject of a test.
const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const START_MS: u64 = 1_700_000_000_000;

/// A store with its own Redis.
pub(crate) struct Bench {
    pub(crate) redis: RedisServer,
    pub(crate) store: Store,
    clock: Arc<AtomicU64>,
    takes: AtomicU64,
}

/// Result of a take, shortened.
pub(crate) struct Took {
    pub(crate) jobs: Vec<LeasedJob>,
    pub(crate) unreadable: Vec<SettleRequest>,
    pub(crate) next_due_ms: Option<u64>,
    pub(crate) dead: Vec<DeadJob>,
    pub(crate) suspects: bool,
    pub(crate) more_expired: bool,
}

impl Took {
    pub(crate) fn ids(&self) -> Vec<&str> {
        self.jobs.iter().map(|leased| leased.delivery.id.as_str()).collect()
    }
}

impl Bench {
    /// Starts a bench with an epoch and a clock fixed at [`START_MS`].
    pub(crate) async fn new() -> Self {
        let redis = RedisServer::start().await.unwrap();
        let clock = Arc::new(AtomicU64::new(START_MS));
        let store = patient_store(&redis.url()).await.with_clock(ScriptClock::Fixed(clock.clone()));
        let bench = Self { redis, store, clock, takes: AtomicU64::new(0) };
        rebuild(&bench.store).await;
        bench
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.fetch_add(u64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Sets the clock back, as after a failover to a host whose clock is behind.
    pub(crate) fn step_back(&self, by: Duration) {
        self.clock.fetch_sub(u64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }

    pub(crate) async fn enqueue(&self, job: NewJob) -> queue::store::EnqueueVerdict {
        self.store.enqueue(&[job]).await.unwrap()[0]
    }

    pub(crate) async fn take(&self, permits: usize) -> Took {
        self.take_of(&[(QUEUE, permits)], TakeMode::Normal).await
    }

    pub(crate) async fn take_of(&self, queues: &[(&'static str, usize)], mode: TakeMode) -> Took {
        let token = LeaseToken::new("test", self.takes.fetch_add(1, Ordering::SeqCst));
        let request = TakeRequest { queues, token: &token, lease: LEASE, mode };
        match self.store.take(&request).await.unwrap() {
            TakeAnswer::Jobs { jobs, unreadable, next_due_ms, dead, suspects, more_expired, .. } => {
                Took { jobs, unreadable, next_due_ms, dead, suspects, more_expired }
            }
            TakeAnswer::NoEpoch => panic!("no epoch"),
        }
    }

    /// Takes the one due job.
    pub(crate) async fn take_one(&self) -> LeasedJob {
        let mut jobs = self.take(10).await.jobs;
        assert_eq!(jobs.len(), 1, "{jobs:?}");
        jobs.remove(0)
    }

    pub(crate) async fn settle(&self, leased: &LeasedJob, end: LeaseEnd) -> queue::store::SettleVerdict {
        self.settle_then(leased, end, Vec::new()).await
    }

    pub(crate) async fn settle_then(
        &self,
        leased: &LeasedJob,
        end: LeaseEnd,
        then: Vec<NewJob>,
    ) -> queue::store::SettleVerdict {
        self.settle_superseding(leased, end, then, &[]).await
    }

    pub(crate) async fn settle_superseding(
        &self,
        leased: &LeasedJob,
        end: LeaseEnd,
        then: Vec<NewJob>,
        superseded: &[&str],
    ) -> queue::store::SettleVerdict {
        let delivery = &leased.delivery;
        let ended = SettleRequest::end_lease(delivery.queue, delivery.id.clone(), leased.token.clone(), end);
        let superseded = superseded.iter().copied().map(address).collect();
        self.store.settle(&[SettleRequest { then, superseded, ..ended }]).await.unwrap().remove(0)
    }

    pub(crate) async fn find(&self, text: &str) -> Option<JobDetail> {
        self.store.find_job(&id(text), &[QUEUE, OTHER]).await.unwrap()
    }

    /// Runs a plain Redis command, bypassing the store.
    pub(crate) async fn redis<T: FromRedisValue>(&self, words: &[&str]) -> T {
        raw(&self.redis.url(), words).await
    }

    /// Returns the content of Redis without the epoch, as text, to show that nothing changed.
    pub(crate) async fn snapshot(&self) -> String {
        let mut keys: Vec<String> = self.redis(&["KEYS", "{dq:0}:*"]).await;
        keys.sort();
        let mut dump = String::new();
        for key in keys {
            let kind: String = self.redis(&["TYPE", &key]).await;
            let read: &[&str] = match kind.as_str() {
                "zset" => &["ZRANGE", &key, "0", "-1", "WITHSCORES"],
                "hash" => &["HGETALL", &key],
                "set" => &["SMEMBERS", &key],
                _ => &["GET", &key],
            };
            let value: redis::Value = self.redis(read).await;
            dump += &format!("{key} {value:?}\n");
        }
        dump
    }
}

/// Creates a store with a long timeout, for busy machines.
pub(crate) async fn patient_store(url: &str) -> Store {
    let store = Store::with_config(RedisConfig { response_timeout: PATIENCE, ..RedisConfig::new(url) }).unwrap();
    store.ping().await.unwrap();
    store
}

/// Creates a connection with the same timeout.
pub(crate) async fn patient_connection(url: &str) -> MultiplexedConnection {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
    redis::Client::open(url).unwrap().get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

pub(crate) async fn raw<T: FromRedisValue>(url: &str, words: &[&str]) -> T {
    let mut connection = patient_connection(url).await;
    let mut cmd = redis::cmd(words[0]);
    cmd.arg(&words[1..]);
    cmd.query_async(&mut connection).await.unwrap()
}

/// Runs an empty rebuild, so that the store has an epoch.
pub(crate) async fn rebuild(store: &Store) {
    let run_id = store.run_id().await.unwrap();
    let marker = store.begin_rebuild().await.unwrap();
    assert!(store.finish_rebuild(&marker, &run_id).await.unwrap());
}

pub(crate) fn id(text: &str) -> JobId {
    JobId::parse(text).unwrap()
}

pub(crate) fn address(text: &str) -> JobAddress {
    JobAddress { queue: QUEUE, id: id(text) }
}

pub(crate) fn timer(text: &str, delay: Duration) -> NewJob {
    NewJob { queue: QUEUE, id: id(text), delay, payload: None, slots: None }
}

pub(crate) fn due_now(text: &str) -> NewJob {
    timer(text, Duration::ZERO)
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns the outcome of a job, whether it got slots or not.
pub(crate) fn outcome_of(ran: ControlFlow<Outcome, Outcome>) -> Outcome {
    match ran {
        ControlFlow::Continue(outcome) | ControlFlow::Break(outcome) => outcome,
    }
}

/// `tick:<n>`: a timer, with all its data in the id.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick(pub(crate) u64);

impl Job for Tick {
    const KIND: &'static str = "tick";
    const QUEUE: &'static str = QUEUE;
    const RETRY: RetryPolicy =
        RetryPolicy { max_tries: 2, initial: Duration::from_millis(10), jitter: 0.0, ..RetryPolicy::DEFAULT };
    const TIMEOUT: Duration = Duration::from_millis(200);

    fn id(&self) -> JobId {
        id(&format!("tick:{}", self.0))
    }

    fn decode(id: &JobId, _: Option<Value>) -> Result<Self, DecodeError> {
        id.key().parse().map(Self).map_err(|error| DecodeError::new(id, error))
    }
}

/// `letter:<n>` with a text as payload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Letter(pub(crate) u64, pub(crate) String);

impl Job for Letter {
    const KIND: &'static str = "letter";
    const QUEUE: &'static str = OTHER;

    fn id(&self) -> JobId {
        id(&format!("letter:{}", self.0))
    }

    fn payload(&self) -> Option<Value> {
        Some(Value::from(self.1.clone()))
    }

    fn decode(id: &JobId, payload: Option<Value>) -> Result<Self, DecodeError> {
        let number = id.key().parse().map_err(|error| DecodeError::new(id, error))?;
        let Some(Value::String(text)) = payload else { return Err(DecodeError::new(id, "no text")) };
        Ok(Self(number, text))
    }
}

/// Waits until a condition that other tasks establish is true. Panics after 20 s.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let reached = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(secs(20), reached).await.unwrap_or_else(|_| panic!("not within 20 s: {what}"));
}
