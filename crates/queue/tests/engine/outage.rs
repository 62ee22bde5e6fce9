//! Outages of Redis under a running worker.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use tokio::sync::Notify;

use crate::{
    runtime::{Worker, counting},
    support::{QUEUE, Tick, eventually, millis, raw, rebuild, secs},
};
use queue::{NewJob, Outcome, RedisConfig, Registry, Runtime, Store, StoreError};

async fn enqueue_ticks(store: &Store, numbers: std::ops::Range<u64>) {
    let jobs: Vec<NewJob> = numbers.map(|n| NewJob::now(&Tick(n))).collect();
    eventually("enqueued", async || store.enqueue(&jobs).await.is_ok()).await;
}

#[tokio::test]
async fn unreachable_redis_error_names_cure_not_password() {
    let error = Store::connect("redis://user:secret@127.0.0.1:1/").await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("127.0.0.1:1") && text.contains("check redis.url"), "{text}");
    assert!(!text.contains("secret"), "{text}");
    let error = Store::connect("127.0.0.1:secret").await.unwrap_err();
    assert!(matches!(error, StoreError::Url { .. }) && !error.to_string().contains("secret"), "{error}");
}

/// Makes Redis write each command to its file before the answer. With an fsync every second, Redis delays the writes for up
/// to two seconds while the disk is busy, and a killed Redis loses them.
async fn write_before_answer(redis: &servers::RedisServer) {
    raw::<()>(&redis.url(), &["CONFIG", "SET", "appendfsync", "no"]).await;
}

#[tokio::test]
async fn worker_survives_redis_crash_without_loss() {
    let mut redis = servers::RedisServer::start().await.unwrap();
    let store = Store::connect(&redis.url()).await.unwrap();
    rebuild(&store).await;
    write_before_answer(&redis).await;
    let count = Arc::new(AtomicUsize::new(0));
    let worker = Worker::start(Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 16)]));
    enqueue_ticks(&store, 0..500).await;
    redis.kill().await;
    tokio::time::sleep(millis(300)).await;
    redis.restart().await.unwrap();
    enqueue_ticks(&store, 500..600).await;
    eventually("all performed", async || {
        let Ok(stats) = store.queue_stats(&[QUEUE]).await else { return false };
        stats[0].due + stats[0].leased == 0 && count.load(Ordering::SeqCst) >= 600
    })
    .await;
    worker.drain().await;
}

// Fault F8
/// A firewall or a proxy drops the connection silently.
#[tokio::test]
async fn silent_connection_is_replaced() {
    let redis = servers::RedisServer::start().await.unwrap();
    let direct = Store::connect(&redis.url()).await.unwrap();
    rebuild(&direct).await;
    let proxy = servers::TcpProxy::start(redis.port()).await.unwrap();
    let store = Store::connect(&format!("redis://127.0.0.1:{}/", proxy.port())).await.unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let worker = Worker::start(Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 16)]));
    enqueue_ticks(&direct, 0..10).await;
    eventually("it works", async || count.load(Ordering::SeqCst) == 10).await;
    proxy.forget_connections();
    enqueue_ticks(&direct, 10..20).await;
    eventually("it works again", async || count.load(Ordering::SeqCst) >= 20).await;
    assert!(store.ping().await.is_ok());
    worker.drain().await;
}

// Fault F8
/// The running `take` still gets its answer, so only the replacement can subscribe again.
#[tokio::test]
async fn replaced_connection_receives_wakes() {
    let redis = servers::RedisServer::start().await.unwrap();
    let store = Store::connect(&redis.url()).await.unwrap();
    rebuild(&store).await;
    let count = Arc::new(AtomicUsize::new(0));
    let worker = Worker::start(Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 4)]));
    let wakes = store.keys().wake_channel();
    let subscribed = async || raw::<(String, i64)>(&redis.url(), &["PUBSUB", "NUMSUB", &wakes]).await.1;
    eventually("subscribed", async || subscribed().await == 1).await;
    raw::<()>(&redis.url(), &["CLIENT", "PAUSE", "5000", "ALL"]).await;
    assert!(matches!(store.ping().await, Err(StoreError::Slow { .. })));
    eventually("it answers again", async || store.ping().await.is_ok()).await;
    eventually("both connections are subscribed", async || subscribed().await == 2).await;
    eventually("the old one is gone", async || subscribed().await == 1).await;
    worker.drain().await;
}

#[tokio::test]
async fn worker_started_without_redis_starts_later() {
    let mut redis = servers::RedisServer::start().await.unwrap();
    let store = Store::connect(&redis.url()).await.unwrap();
    rebuild(&store).await;
    write_before_answer(&redis).await;
    enqueue_ticks(&store, 0..3).await;
    redis.kill().await;
    let count = Arc::new(AtomicUsize::new(0));
    let lazy = Store::connect_lazy(&redis.url()).unwrap();
    let worker = Worker::start(Runtime::new(lazy, counting(&count)).queues([(QUEUE, 16)]));
    tokio::time::sleep(millis(200)).await;
    redis.restart().await.unwrap();
    eventually("all performed", async || count.load(Ordering::SeqCst) == 3).await;
    worker.drain().await;
}

#[tokio::test]
async fn idle_worker_is_woken_after_outage() {
    let mut redis = servers::RedisServer::start().await.unwrap();
    let store = Store::connect(&redis.url()).await.unwrap();
    rebuild(&store).await;
    let started = Arc::new(Notify::new());
    let notify = started.clone();
    let registry = Registry::new().register::<Tick, _, _>(move |_, _| {
        notify.notify_one();
        async { Outcome::done() }
    });
    let worker = Worker::start(Runtime::new(store.clone(), registry).queues([(QUEUE, 4)]));
    redis.restart().await.unwrap();
    enqueue_ticks(&store, 0..1).await;
    started.notified().await;
    tokio::time::sleep(millis(2_500)).await;
    let mut waits = Vec::new();
    for n in 1..8 {
        tokio::time::sleep(millis(50)).await;
        let begun = Instant::now();
        enqueue_ticks(&store, n..n + 1).await;
        started.notified().await;
        waits.push(begun.elapsed());
    }
    worker.drain().await;
    waits.sort();
    assert!(waits[3] < millis(50), "{waits:?}");
}

#[tokio::test]
async fn flush_stops_jobs_until_rebuild() {
    let redis = servers::RedisServer::start().await.unwrap();
    let store = Store::connect(&redis.url()).await.unwrap();
    rebuild(&store).await;
    let count = Arc::new(AtomicUsize::new(0));
    let missing = Arc::new(Notify::new());
    let runtime = Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 4)]).on_missing_epoch(missing.clone());
    let worker = Worker::start(runtime);
    enqueue_ticks(&store, 0..5).await;
    eventually("performed", async || count.load(Ordering::SeqCst) == 5).await;
    raw::<()>(&redis.url(), &["FLUSHALL"]).await;
    missing.notified().await;
    enqueue_ticks(&store, 10..15).await;
    tokio::time::sleep(millis(300)).await;
    assert_eq!(count.load(Ordering::SeqCst), 5);
    rebuild(&store).await;
    eventually("performed", async || count.load(Ordering::SeqCst) == 10).await;
    worker.drain().await;
}

/// A worker waits for a busy server. Redis would still run an abandoned call, and its jobs would wait for their leases
/// to expire.
#[tokio::test]
async fn five_second_block_costs_no_delivery() {
    let redis = servers::RedisServer::start().await.unwrap();
    let store = Store::connect(&redis.url()).await.unwrap();
    rebuild(&store).await;
    let count = Arc::new(AtomicUsize::new(0));
    let worker = Worker::start(Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 4)]));
    enqueue_ticks(&store, 0..5).await;
    eventually("performed", async || count.load(Ordering::SeqCst) == 5).await;
    // This client times out within the pause, even if it starts late.
    let config = RedisConfig { response_timeout: millis(500), ..RedisConfig::new(redis.url()) };
    let hasty = Store::with_config(config).unwrap();
    eventually("connected", async || hasty.ping().await.is_ok()).await;
    let url = redis.url();
    let block = tokio::spawn(async move { raw::<()>(&url, &["CLIENT", "PAUSE", "5000", "ALL"]).await });
    block.await.unwrap();
    let jobs: Vec<NewJob> = (10..15).map(|n| NewJob::now(&Tick(n))).collect();
    assert!(matches!(hasty.enqueue(&jobs).await, Err(StoreError::Slow { .. })));
    eventually("performed", async || count.load(Ordering::SeqCst) == 10).await;
    tokio::time::sleep(secs(1)).await;
    let summary = worker.drain().await;
    assert_eq!((summary.settled, summary.refused), (10, 0));
}

/// The password of Redis was different for a time, and is correct again.
#[tokio::test]
async fn refused_login_is_retried() {
    let redis = servers::RedisServer::start().await.unwrap();
    let as_user = |password: &str| format!("redis://:{password}@127.0.0.1:{}/", redis.port());
    raw::<()>(&redis.url(), &["CONFIG", "SET", "requirepass", "another"]).await;
    let store = Store::with_config(RedisConfig::new(as_user("right"))).unwrap();
    eventually("it is refused", async || matches!(store.ping().await, Err(StoreError::Login { .. }))).await;
    raw::<()>(&as_user("another"), &["CONFIG", "SET", "requirepass", "right"]).await;
    eventually("it is let in", async || store.ping().await.is_ok()).await;
}
