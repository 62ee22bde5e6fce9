//! A failover under a running worker: a primary, a replica, three sentinels.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use servers::SentinelGroup;

use crate::{
    runtime::{Worker, counting},
    support::{QUEUE, Tick, eventually, millis, raw, rebuild},
};
use queue::{Keys, NewJob, Outcome, RedisConfig, Registry, Runtime, ShardCount, Shards, Store, StoreError};

struct Fleet {
    primary: servers::RedisServer,
    replica: servers::RedisServer,
    sentinels: SentinelGroup,
}

impl Fleet {
    async fn start() -> Self {
        let (primary, replica) =
            (servers::RedisServer::start().await.unwrap(), servers::RedisServer::start().await.unwrap());
        raw::<()>(&replica.url(), &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]).await;
        raw::<()>(&primary.url(), &["CONFIG", "SET", "repl-diskless-sync-delay", "0"]).await;
        eventually("replicating", async || {
            raw::<String>(&replica.url(), &["INFO", "replication"]).await.contains("master_link_status:up")
        })
        .await;
        let sentinels = SentinelGroup::start(&primary).await.unwrap();
        Self { primary, replica, sentinels }
    }
}

async fn enqueue_ticks(store: &Store, numbers: std::ops::Range<u64>) {
    let jobs: Vec<NewJob> = numbers.map(|n| NewJob::now(&Tick(n))).collect();
    eventually("enqueued", async || store.enqueue(&jobs).await.is_ok()).await;
}

#[tokio::test]
async fn failover_continues_jobs_and_changes_the_run_id() {
    let mut fleet = Fleet::start().await;
    let store = Store::connect(&fleet.sentinels.url()).await.unwrap();
    rebuild(&store).await;
    let count = Arc::new(AtomicUsize::new(0));
    let worker = Worker::start(Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 16)]));
    enqueue_ticks(&store, 0..200).await;
    eventually("performed", async || count.load(Ordering::SeqCst) == 200).await;
    // Data that the replica has received is not lost.
    store.enqueue(&[NewJob::after(&Tick(1_000), millis(2_500))]).await.unwrap();
    eventually("replicated", async || {
        raw::<Option<u64>>(&fleet.replica.url(), &["ZSCORE", "{dq:0}:due:timers", "tick:1000"]).await.is_some()
    })
    .await;

    fleet.primary.kill().await;
    enqueue_ticks(&store, 200..300).await;
    eventually("all performed", async || count.load(Ordering::SeqCst) >= 301).await;

    // The epoch was replicated but names another process. The reconciler treats this as a restart and rebuilds.
    let epoch = store.epoch().await.unwrap().unwrap();
    let run_id = store.run_id().await.unwrap();
    assert_ne!(epoch.run_id, run_id);
    rebuild(&store).await;
    assert_eq!(store.epoch().await.unwrap().unwrap().run_id, run_id);

    // The subscription moved, too: an idle worker is woken at once.
    let mut waits = Vec::new();
    for n in 300..307 {
        tokio::time::sleep(millis(50)).await;
        let before = count.load(Ordering::SeqCst);
        let begun = Instant::now();
        enqueue_ticks(&store, n..n + 1).await;
        while count.load(Ordering::SeqCst) == before {
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        waits.push(begun.elapsed());
    }
    waits.sort();
    assert!(waits[3] < millis(50), "{waits:?}");
    worker.drain().await;
}

/// The shards have one primary, and each has a connection that follows it.
#[tokio::test]
async fn shards_continue_after_failover() {
    const SHARDS: u16 = 4;
    let mut fleet = Fleet::start().await;
    let config = RedisConfig::new(fleet.sentinels.url());
    let shards = Shards::connect_lazy(&config, ShardCount::new(SHARDS).unwrap(), &[]).unwrap();
    for store in shards.stores() {
        rebuild(store).await;
    }
    let performed = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = performed.clone();
    let registry = Registry::new().register::<Tick, _, _>(move |tick, _| {
        seen.lock().unwrap().insert(tick.0);
        async { Outcome::done() }
    });
    let worker = Worker::start(Runtime::new(shards.clone(), registry).queues([(QUEUE, 16)]));
    let timers: Vec<NewJob> = (0..40).map(|n| NewJob::after(&Tick(n), millis(2_500))).collect();
    shards.enqueue(&timers).await.unwrap();
    for shard in 0..SHARDS {
        let due = Keys::of_shard(shard).due_set(QUEUE);
        eventually("replicated", async || {
            let jobs = raw::<usize>(&fleet.replica.url(), &["ZCARD", &due]).await;
            jobs > 0 && jobs == raw::<usize>(&fleet.primary.url(), &["ZCARD", &due]).await
        })
        .await;
    }

    fleet.primary.kill().await;
    let later: Vec<NewJob> = (40..140).map(|n| NewJob::now(&Tick(n))).collect();
    eventually("enqueued", async || shards.enqueue(&later).await.is_ok()).await;
    eventually("all performed", async || performed.lock().unwrap().len() == 140).await;
    worker.drain().await;
}

/// The old primary becomes a replica and cuts no connection: the client learns of it only from a refused write.
#[tokio::test]
async fn planned_failover_moves_writes_to_new_primary() {
    let fleet = Fleet::start().await;
    let store = Store::connect(&fleet.sentinels.url()).await.unwrap();
    rebuild(&store).await;
    let sentinel = fleet.sentinels.sentinel_url();
    raw::<()>(&sentinel, &["SENTINEL", "FAILOVER", "main"]).await;
    eventually("switched", async || {
        raw::<Vec<String>>(&sentinel, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]).await[1]
            == fleet.replica.port().to_string()
    })
    .await;
    // The sentinels would do this, too, but later.
    raw::<()>(&fleet.primary.url(), &["REPLICAOF", "127.0.0.1", &fleet.replica.port().to_string()]).await;
    enqueue_ticks(&store, 0..1).await;
    let due: usize = raw(&fleet.replica.url(), &["ZCARD", "{dq:0}:due:timers"]).await;
    assert_eq!(due, 1);
}

#[tokio::test]
async fn replica_error_names_the_replica() {
    let fleet = (servers::RedisServer::start().await.unwrap(), servers::RedisServer::start().await.unwrap());
    raw::<()>(&fleet.1.url(), &["REPLICAOF", "127.0.0.1", &fleet.0.port().to_string()]).await;
    let store = Store::connect(&fleet.1.url()).await.unwrap();
    let error = store.enqueue(&[NewJob::now(&Tick(1))]).await.unwrap_err();
    assert!(matches!(error, StoreError::Replica { .. }) && error.is_transient(), "{error}");
}

#[tokio::test]
async fn unreachable_sentinels_error_names_cure() {
    let store = Store::with_config(RedisConfig::new("redis+sentinel://user:secret@127.0.0.1:1/main")).unwrap();
    let error = store.ping().await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{text}");
    assert!(text.contains("'main' of the sentinels 127.0.0.1:1") && !text.contains("secret"), "{text}");
}
