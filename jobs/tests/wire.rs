//! The contract as it appears in Redis: the format that a producer writes, and the handling of newer and broken
//! formats. Programs of different versions share one Redis, so a changed snapshot here breaks running programs.
//!
//! After an intended change: `INSTA_UPDATE=always cargo test -p jobs`, and review the difference.

use std::{
    fmt::Write,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use jobs::{
    ApplyCallback, BindingId, CancelBooking, CompensateOrder, DispatchOrder, EscalateAlert, ExpireAttempt, ExpireOrder,
    Job, JobId, NewJob, OrderId, PeriodicTick, PollPartner, RefundOrder, RemindDispatchers, ReportStaleTrip, RunCycle,
    RunPlan, SendAlarm, SendDetails, SendNotification, SettleTransaction, StartWave, SubmitOtp, WarnOfPickup,
    alarm::AlarmContent, queues,
};
use queue::{
    DecodeError, Delivery, LeaseToken, Outcome, Registry, RetryPolicy, ScriptClock, Store,
    store::{EnqueueVerdict, JobState, TakeAnswer, TakeMode, TakeRequest},
};
use redis::FromRedisValue;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use servers::RedisServer;

/// 2030-01-01 08:00:00 UTC.
const START_MS: u64 = 1_893_484_800_000;

fn order() -> OrderId {
    "ORD-1".parse().unwrap()
}

fn binding() -> BindingId {
    "BIND-1".parse().unwrap()
}

/// A job with a payload; order dispatch itself has few of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Receipt {
    #[serde(skip)]
    number: u32,
    total_minor: i64,
    lines: Vec<String>,
}

impl Receipt {
    fn example() -> Self {
        Self { number: 7, total_minor: 150_000, lines: vec!["ride".to_owned(), "naïve \"toll\"".to_owned()] }
    }
}

impl Job for Receipt {
    const KIND: &'static str = "receipt";
    const QUEUE: &'static str = queues::NOTIFY;
    const RETRY: RetryPolicy = RetryPolicy { max_tries: 3, ..RetryPolicy::DEFAULT };

    fn id(&self) -> JobId {
        JobId::parse(format!("receipt:{}", self.number)).unwrap()
    }

    fn payload(&self) -> Option<Value> {
        serde_json::to_value(self).ok()
    }

    fn decode(id: &JobId, payload: Option<Value>) -> Result<Self, DecodeError> {
        let number = id.key().parse().map_err(|error| DecodeError::new(id, error))?;
        let payload: Self =
            serde_json::from_value(payload.unwrap_or_default()).map_err(|error| DecodeError::new(id, error))?;
        Ok(Self { number, ..payload })
    }
}

/// Returns a job's contract as text, and a request to run it in 15 s.
fn contract<J: Job + PartialEq + std::fmt::Debug>(job: J) -> (String, NewJob) {
    let RetryPolicy { max_tries, initial, multiplier, max, jitter } = J::RETRY;
    assert_eq!(J::decode(&job.id(), job.payload()).unwrap(), job);
    assert_eq!(job.id().kind(), J::KIND);
    let payload = job.payload().map_or("none".to_owned(), |payload| payload.to_string());
    let text = format!(
        "{}\n  queue    {}\n  id       {}\n  payload  {payload}\n  \
         tries    {max_tries}, after {initial:?} x {multiplier}, at most {max:?}, +-{jitter}\n  timeout  {:?}\n",
        J::KIND,
        J::QUEUE,
        job.id(),
        J::TIMEOUT
    );
    (text, NewJob::after(&job, Duration::from_secs(15)))
}

fn all() -> Vec<(String, NewJob)> {
    vec![
        contract(DispatchOrder { order: order(), attempt: 3 }),
        contract(ExpireAttempt { order: order(), attempt: 3 }),
        contract(StartWave { order: order(), attempt: 3, wave: 2 }),
        contract(PollPartner { order: order(), number: 7 }),
        contract(ApplyCallback { order: order(), inbox_id: 17 }),
        contract(ExpireOrder { order: order() }),
        contract(ReportStaleTrip { order: order() }),
        contract(WarnOfPickup { order: order() }),
        contract(CompensateOrder { order: order() }),
        contract(CancelBooking { order: order(), attempt: 3 }),
        contract(SendDetails { order: order(), attempt: 3 }),
        contract(RefundOrder { order: order() }),
        contract(SendNotification { subject: order().into(), outbox_id: 41 }),
        contract(EscalateAlert { order: order(), alert_id: 5 }),
        contract(RemindDispatchers { order: order(), alert_id: 6 }),
        contract(SendAlarm {
            order: order(),
            channel: "slack".to_owned(),
            content: AlarmContent { message: serde_json::json!({ "order_id": "ORD-1" }), told: false },
        }),
        contract(PeriodicTick { schedule: "cleanup".to_owned(), slot: 1_893_484_800 }),
        contract(RunCycle { binding: binding(), cycle: 7 }),
        contract(SubmitOtp { binding: binding(), cycle: 7 }),
        contract(SettleTransaction { binding: binding(), cycle: 5 }),
        contract(RunPlan { plan: "01937c3e-8f00-7000-8000-000000000001".parse().unwrap() }),
        contract(Receipt::example()),
    ]
}

/// Starts a Redis with an epoch and a fixed clock.
async fn redis() -> (RedisServer, Store) {
    let redis = RedisServer::start().await.unwrap();
    let store = Store::connect(&redis.url()).await.unwrap();
    let store = store.with_clock(ScriptClock::Fixed(Arc::new(AtomicU64::new(START_MS))));
    let marker = store.begin_rebuild().await.unwrap();
    assert!(store.finish_rebuild(&marker, "run").await.unwrap());
    (redis, store)
}

async fn command<T: FromRedisValue>(redis: &RedisServer, words: &[&str]) -> T {
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await.unwrap()
}

/// Returns the content of Redis, without the epoch.
async fn content(redis: &RedisServer) -> String {
    let mut keys: Vec<String> = command(redis, &["KEYS", "*"]).await;
    keys.retain(|key| key != "{dq:0}:epoch");
    keys.sort();
    let mut text = String::new();
    for key in keys {
        let kind: String = command(redis, &["TYPE", &key]).await;
        let read: &[&str] =
            if kind == "zset" { &["ZRANGE", &key, "0", "-1", "WITHSCORES"] } else { &["HGETALL", &key] };
        let entries: Vec<String> = command(redis, read).await;
        let mut pairs: Vec<&[String]> = entries.chunks(2).collect();
        if kind == "hash" {
            // Redis guarantees no order here, and uses a new seed at every start.
            pairs.sort();
        }
        writeln!(text, "{kind} {key}").unwrap();
        for pair in pairs {
            writeln!(text, "  {} = {}", pair[0], pair[1]).unwrap();
        }
    }
    text
}

#[test]
fn every_job_keeps_its_contract() {
    let text: Vec<String> = all().into_iter().map(|(text, _)| text).collect();
    insta::assert_snapshot!("contracts", text.join("\n"));
}

#[test]
fn every_job_is_pinned() {
    let here = include_str!("wire.rs");
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for job in text.split("impl Job for ").skip(1).filter_map(|rest| rest.split_whitespace().next()) {
            assert!(here.contains(&format!("contract({job} {{")), "{job} is missing in `all`");
        }
    }
}

#[tokio::test]
async fn enqueued_jobs_keep_their_redis_format() {
    let (redis, store) = redis().await;
    let jobs: Vec<NewJob> = all().into_iter().map(|(_, job)| job).collect();
    let verdicts = store.enqueue(&jobs).await.unwrap();
    assert!(verdicts.iter().all(|verdict| *verdict == EnqueueVerdict::Inserted), "{verdicts:?}");
    let written = content(&redis).await;
    insta::assert_snapshot!("content", written);
    let verdicts = store.enqueue(&jobs).await.unwrap();
    assert!(verdicts.iter().all(|verdict| *verdict == EnqueueVerdict::Kept), "{verdicts:?}");
    assert_eq!(content(&redis).await, written, "twice is once");
}

/// Takes the due jobs, runs them with a current worker, and returns the result of each.
async fn perform_all(store: &Store) -> String {
    let registry = Registry::new()
        .register(|_: Receipt, _: Delivery| async { Outcome::done() })
        .register(|_: DispatchOrder, _: Delivery| async { Outcome::done() });
    let queues = queues::ALL.map(|queue| (queue, 100));
    let token = LeaseToken::new("test", 1);
    let lease = Duration::from_secs(8);
    let request = TakeRequest { queues: &queues, token: &token, lease, mode: TakeMode::Normal };
    let TakeAnswer::Jobs { jobs, unreadable, .. } = store.take(&request).await.unwrap() else { panic!("no epoch") };
    let mut ids: Vec<JobId> = unreadable.iter().map(|settle| settle.id.clone()).collect();
    let mut settles = unreadable;
    for leased in &jobs {
        ids.push(leased.delivery.id.clone());
        let outcome = registry.perform(leased.delivery.clone()).await;
        settles.push(registry.settle(leased, outcome));
    }
    store.settle(&settles).await.unwrap();
    ids.sort();
    let mut text = String::new();
    for id in ids {
        let found = store.find_job(&id, &queues::ALL).await.unwrap();
        let fate = match found {
            None => "performed".to_owned(),
            Some(job) if job.state == JobState::Dead => {
                let record = job.dead.unwrap();
                format!("dead: {}\n    with {}", record.error, record.payload)
            }
            Some(job) => {
                let wait = (job.at_ms - START_MS) / 1000;
                format!("waits {wait} s, failed {}, lost {}, envelope {:?}", job.failed, job.lost, job.envelope)
            }
        };
        writeln!(text, "{id}\n  {fate}").unwrap();
    }
    text
}

#[tokio::test]
async fn newer_payloads_wait_and_broken_ones_die() {
    let (redis, store) = redis().await;
    for (queue, id, envelope) in [
        ("notify-queue", "receipt:1", r#"{"v":1,"trace":"a1","payload":{"total_minor":1,"lines":[]}}"#),
        ("notify-queue", "receipt:2", r#"{"v":1,"payload":{"total_minor":1,"lines":[],"tip_minor":5}}"#),
        ("notify-queue", "receipt:3", r#"{"v":2,"body":"AAE="}"#),
        ("notify-queue", "receipt:4", r#"{"v":1,"payload":{"total_minor":"many","lines":[]}}"#),
        ("notify-queue", "receipt:5", r#"{"v":1,"payload":"#),
        ("notify-queue", "receipt:6", r#"{"payload":{}}"#),
        ("notify-queue", "receipt:7", ""),
        ("dispatch-queue", "dispatch:ORD-1:first", ""),
        ("dispatch-queue", "teleport:ORD-1:1", ""),
        ("dispatch-queue", "teleport:ORD-1:2", r#"{"v":1,"payload":{"to":"here"}}"#),
    ] {
        command::<()>(&redis, &["ZADD", &format!("{{dq:0}}:due:{queue}"), &START_MS.to_string(), id]).await;
        if !envelope.is_empty() {
            command::<()>(&redis, &["HSET", "{dq:0}:jobs", id, envelope]).await;
        }
    }
    insta::assert_snapshot!("fates", perform_all(&store).await);
}

// Fault S20g
/// A login with exactly the rights in the README.
#[tokio::test]
async fn producer_has_few_rights_and_forges_no_alert() {
    let (redis, _) = redis().await;
    let readme = include_str!("../README.md");
    let (_, rights) = readme.split_once("ACL SETUSER producer on >... ").unwrap();
    let (rights, _) = rights.split_once("```").unwrap();
    let login: Vec<&str> =
        ["ACL", "SETUSER", "producer", "on", ">secret"].into_iter().chain(rights.split_whitespace()).collect();
    command::<()>(&redis, &login).await;
    let url = redis.url().replace("redis://", "redis://producer:secret@");
    let store = Store::connect(&url).await.unwrap();
    let (own, others): (Vec<NewJob>, Vec<NewJob>) =
        all().into_iter().map(|(_, job)| job).partition(|job| job.queue == queues::DISPATCH);
    for _ in 0..2 {
        store.enqueue(&own).await.unwrap();
    }
    // Leased jobs, dead jobs and suspects exist, too, so that the scripts read those keys.
    command::<()>(&redis, &["HSET", "{dq:0}:leases", "dispatch:ORD-1:7", "a:1 1 -"]).await;
    command::<()>(&redis, &["HSET", "{dq:0}:dead", "dispatch:ORD-1:8", "{}"]).await;
    command::<()>(&redis, &["ZADD", "{dq:0}:suspects:dispatch-queue", "9999999999999", "dispatch:ORD-1:9"]).await;
    let again: Vec<NewJob> = [7, 8, 9].map(|attempt| NewJob::now(&DispatchOrder { order: order(), attempt })).into();
    let verdicts = store.enqueue(&again).await.unwrap();
    assert_eq!(verdicts, [EnqueueVerdict::Again, EnqueueVerdict::Dead, EnqueueVerdict::Moved]);
    assert!(others.iter().any(|job| job.queue == queues::NOTIFY), "alerts and messages");
    for job in others {
        assert!(store.enqueue(std::slice::from_ref(&job)).await.is_err(), "it may not enqueue {}", job.id);
    }
    assert!(store.epoch().await.is_err(), "it may read nothing else");
}
