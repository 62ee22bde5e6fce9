//! A Redis Cluster of three masters and three replicas under running workers: failovers, a killed master, a move of the
//! queue's slot to another master, and a flush.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use servers::{RedisCluster, RedisServer};

use crate::{
    runtime::{Worker, counting},
    support::{LEASE, QUEUE, Tick, due_now, eventually, millis, raw, rebuild, secs, timer},
};
use queue::{
    Keys, LeaseToken, NewJob, RedisConfig, Runtime, Store, StoreError,
    store::{TakeAnswer, TakeMode, TakeRequest, key_slot},
};

fn slot() -> u16 {
    key_slot(Keys::new().epoch().as_bytes())
}

/// Returns the number of the node that reports itself as owner of the queue's slot.
async fn owner(cluster: &RedisCluster) -> usize {
    for (number, node) in cluster.nodes().iter().enumerate() {
        if is_owner(node).await {
            return number;
        }
    }
    panic!("no node serves the queue's slot");
}

async fn is_owner(node: &RedisServer) -> bool {
    let Ok(client) = redis::Client::open(node.url()) else { return false };
    let Ok(mut connection) = client.get_multiplexed_async_connection().await else { return false };
    let mut role = redis::cmd("CLUSTER");
    let nodes: String = role.arg("NODES").query_async(&mut connection).await.unwrap();
    let own = nodes.lines().find(|line| line.contains("myself,master"));
    own.is_some_and(|line| {
        line.split(' ').skip(8).any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&slot()))
        })
    })
}

async fn id_of(node: &RedisServer) -> String {
    raw(&node.url(), &["CLUSTER", "MYID"]).await
}

async fn enqueue_ticks(store: &Store, numbers: std::ops::Range<u64>) {
    let jobs: Vec<NewJob> = numbers.map(|n| NewJob::now(&Tick(n))).collect();
    eventually("enqueued", async || store.enqueue(&jobs).await.is_ok()).await;
}

/// Enqueues due jobs until it is stopped. Returns their number.
async fn keep_enqueueing(store: Store, stop: Arc<AtomicBool>) -> u64 {
    let mut n = 0;
    while !stop.load(Ordering::SeqCst) {
        let jobs: Vec<NewJob> = (n..n + 20).map(|n| NewJob::now(&Tick(n))).collect();
        while store.enqueue(&jobs).await.is_err() {
            tokio::time::sleep(millis(10)).await;
        }
        n += 20;
    }
    n
}

/// Asserts that an idle worker starts a job at once, so its subscription works. Without a subscription the worker would
/// poll only after up to a second.
async fn assert_woken_at_once(store: &Store, count: &AtomicUsize, numbers: std::ops::Range<u64>) {
    let mut waits = Vec::new();
    for n in numbers {
        tokio::time::sleep(millis(50)).await;
        let before = count.load(Ordering::SeqCst);
        let begun = Instant::now();
        enqueue_ticks(store, n..n + 1).await;
        while count.load(Ordering::SeqCst) == before {
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        waits.push(begun.elapsed());
    }
    waits.sort();
    assert!(waits[waits.len() / 2] < millis(600), "{waits:?}");
}

async fn replicated(cluster: &RedisCluster, node: usize, text: &str) {
    let port = cluster.nodes()[node].port().to_string();
    let replica = &cluster.nodes()[node + 3];
    eventually("replicated", async || {
        // A replica answers reads only after READONLY.
        let client = redis::Client::open(replica.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        redis::cmd("READONLY").exec_async(&mut connection).await.unwrap();
        let mut score = redis::cmd("ZSCORE");
        score.arg("{dq:0}:due:timers").arg(text);
        score.query_async::<Option<u64>>(&mut connection).await.unwrap_or_else(|e| panic!("{port}: {e}")).is_some()
    })
    .await;
}

/// Starts to move the queue's slot, as `redis-cli --cluster reshard` does.
async fn begin_move(source: &RedisServer, target: &RedisServer) {
    let slot = slot().to_string();
    let (source_id, target_id) = (id_of(source).await, id_of(target).await);
    raw::<()>(&target.url(), &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]).await;
    raw::<()>(&source.url(), &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).await;
}

/// Moves the keys one by one, slowly enough for calls in between, then the slot itself.
async fn finish_move(source: &RedisServer, target: &RedisServer) {
    let (slot, port, target_id) = (slot().to_string(), target.port().to_string(), id_of(target).await);
    loop {
        let keys: Vec<String> = raw(&source.url(), &["CLUSTER", "GETKEYSINSLOT", &slot, "1"]).await;
        let Some(key) = keys.first() else { break };
        raw::<String>(&source.url(), &["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]).await;
        tokio::time::sleep(millis(20)).await;
    }
    for node in [target, source] {
        raw::<()>(&node.url(), &["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]).await;
    }
}

#[tokio::test]
async fn cluster_is_found_from_any_node() {
    let cluster = RedisCluster::start().await.unwrap();
    let owner = owner(&cluster).await;
    // One seed node, which does not serve the slot itself.
    let seed = cluster.nodes()[(owner + 1) % 3].port();
    let store = Store::connect(&format!("redis+cluster://127.0.0.1:{seed}")).await.unwrap();
    rebuild(&store).await;
    let count = Arc::new(AtomicUsize::new(0));
    let worker = Worker::start(Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 16)]));
    enqueue_ticks(&store, 0..500).await;
    eventually("performed", async || count.load(Ordering::SeqCst) == 500).await;
    assert_woken_at_once(&store, &count, 500..507).await;
    store.pause_queue(QUEUE).await.unwrap();
    enqueue_ticks(&store, 600..601).await;
    assert!(store.resume_queue(QUEUE).await.unwrap());
    eventually("performed", async || count.load(Ordering::SeqCst) == 508).await;
    assert_eq!(worker.drain().await.refused, 0);

    // Computed slots equal the server's, and other commands reach the nodes of their keys.
    let home = cluster.nodes()[owner].url();
    for key in ["{dq:0}:epoch", "trip_lock:ORD-1", "a{b}c", "{}x"] {
        assert_eq!(raw::<u16>(&home, &["CLUSTER", "KEYSLOT", key]).await, key_slot(key.as_bytes()), "{key}");
    }
    for n in 0..50 {
        let key = format!("beside:{n}");
        store.run_command::<()>("set", redis::cmd("SET").arg(&key).arg(n)).await.unwrap();
        assert_eq!(store.run_command::<u32>("get", redis::cmd("GET").arg(&key)).await.unwrap(), n);
    }
    let mut sets = Vec::new();
    for n in 0..20 {
        let key = format!("waiting:{n}");
        store.run_command::<()>("add", redis::cmd("ZADD").arg(&key).arg(1).arg("x")).await.unwrap();
        sets.push(key);
    }
    sets.sort();
    assert!(store.find_keys("waiting:*", "zset").await.unwrap().into_iter().eq(sets), "over all masters");
    // The run id is that of the node with the queue's keys.
    assert!(raw::<String>(&home, &["INFO", "server"]).await.contains(&store.run_id().await.unwrap()));
}

#[tokio::test]
async fn killed_master_keeps_jobs_and_changes_run_id() {
    let mut cluster = RedisCluster::start().await.unwrap();
    let store = Store::connect(&cluster.url()).await.unwrap();
    rebuild(&store).await;
    let count = Arc::new(AtomicUsize::new(0));
    let worker = Worker::start(Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 16)]));
    enqueue_ticks(&store, 0..200).await;
    eventually("performed", async || count.load(Ordering::SeqCst) == 200).await;
    // Data that the replica has received is not lost.
    store.enqueue(&[NewJob::after(&Tick(1_000), secs(4))]).await.unwrap();
    let owner = owner(&cluster).await;
    replicated(&cluster, owner, "tick:1000").await;

    cluster.node_mut(owner).kill().await;
    enqueue_ticks(&store, 200..300).await;
    eventually("all performed", async || count.load(Ordering::SeqCst) >= 301).await;

    // The epoch was replicated but names another process. The reconciler treats this as a restart and rebuilds.
    let epoch = store.epoch().await.unwrap().unwrap();
    let run_id = store.run_id().await.unwrap();
    assert_ne!(epoch.run_id, run_id);
    rebuild(&store).await;
    assert_eq!(store.epoch().await.unwrap().unwrap().run_id, run_id);
    assert_woken_at_once(&store, &count, 300..307).await;

    // The old master comes back as a replica, without further instructions.
    cluster.node_mut(owner).restart().await.unwrap();
    enqueue_ticks(&store, 400..500).await;
    eventually("all performed", async || count.load(Ordering::SeqCst) >= 408).await;
    worker.drain().await;
}

/// The failover cuts no connection: the client learns of it only from the redirection.
#[tokio::test]
async fn calls_follow_master_after_planned_failover() {
    let cluster = RedisCluster::start().await.unwrap();
    let store = Store::connect(&cluster.url()).await.unwrap();
    rebuild(&store).await;
    let count = Arc::new(AtomicUsize::new(0));
    let worker = Worker::start(Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 16)]));
    enqueue_ticks(&store, 0..10).await;
    eventually("performed", async || count.load(Ordering::SeqCst) == 10).await;
    let before = owner(&cluster).await;
    raw::<()>(&cluster.nodes()[before + 3].url(), &["CLUSTER", "FAILOVER"]).await;
    eventually("failed over", async || is_owner(&cluster.nodes()[before + 3]).await).await;
    enqueue_ticks(&store, 10..110).await;
    eventually("performed", async || count.load(Ordering::SeqCst) == 110).await;
    assert_woken_at_once(&store, &count, 110..117).await;
    assert_eq!(worker.drain().await.refused, 0);
}

/// The keys move one by one while jobs are enqueued and run. No script stops halfway, and no job is lost.
#[tokio::test]
async fn queue_slot_moves_to_another_master_under_load() {
    let cluster = RedisCluster::start().await.unwrap();
    let store = Store::connect(&cluster.url()).await.unwrap();
    rebuild(&store).await;
    let count = Arc::new(AtomicUsize::new(0));
    let worker = Worker::start(Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 16)]));
    let from = owner(&cluster).await;
    let to = (from + 1) % 3;
    let (source, target) = (&cluster.nodes()[from], &cluster.nodes()[to]);
    let later: Vec<NewJob> = (5_000..5_500).map(|n| timer(&format!("tick:{n}"), secs(900))).collect();
    store.enqueue(&later).await.unwrap();

    let stop = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn(keep_enqueueing(store.clone(), stop.clone()));
    eventually("under load", async || count.load(Ordering::SeqCst) > 200).await;

    begin_move(source, target).await;
    finish_move(source, target).await;
    eventually("moved", async || is_owner(target).await).await;
    let before = count.load(Ordering::SeqCst);
    eventually("performed after the move", async || count.load(Ordering::SeqCst) > before + 200).await;
    stop.store(true, Ordering::SeqCst);
    let enqueued = usize::try_from(load.await.unwrap()).unwrap();
    eventually("all performed", async || count.load(Ordering::SeqCst) >= enqueued).await;
    let stats = store.queue_stats(&[QUEUE]).await.unwrap();
    assert_eq!((stats[0].scheduled, stats[0].leased, stats[0].dead), (500, 0, 0));
    assert_woken_at_once(&store, &count, 900_000..900_007).await;
    // The epoch does not name the new server, so all timers are compared, as after a failover.
    assert_ne!(store.epoch().await.unwrap().unwrap().run_id, store.run_id().await.unwrap());
    worker.drain().await;
}

/// While a slot is moved, its owner starts a script if it has all keys that the call names. The script then fails at
/// the first other key that has moved, after it may have rescued a job without updating its lease. Here all keys of the
/// queue are still present, and one lease must be rescued. The owner must refuse the script before it starts.
#[tokio::test]
async fn scripts_are_refused_while_their_slot_moves() {
    let cluster = RedisCluster::start().await.unwrap();
    let store = Store::connect(&cluster.url()).await.unwrap();
    rebuild(&store).await;
    let from = owner(&cluster).await;
    let (source, target) = (&cluster.nodes()[from], &cluster.nodes()[(from + 1) % 3]);
    let keys = Keys::new();
    for set in [keys.due_set(QUEUE), keys.dead_set(QUEUE), keys.suspect_set(QUEUE), keys.parked_set(QUEUE)] {
        raw::<()>(&source.url(), &["ZADD", &set, "99999999999999", "tick:1"]).await;
    }
    raw::<()>(&source.url(), &["ZADD", &keys.leased_set(QUEUE), "1", "tick:2"]).await;
    for table in [keys.lease_table(), keys.job_envelopes(), keys.job_tries(), keys.dead_records(), keys.suspect_turn()]
    {
        raw::<()>(&source.url(), &["HSET", &table, "tick:3", "x 1 -"]).await;
    }
    raw::<()>(&source.url(), &["SADD", &keys.paused_queues(), "another"]).await;
    let state = async || {
        let mut state = Vec::new();
        for set in [keys.due_set(QUEUE), keys.leased_set(QUEUE), keys.suspect_set(QUEUE)] {
            state.push(raw::<Vec<String>>(&source.url(), &["ZRANGE", &set, "0", "-1", "WITHSCORES"]).await);
        }
        state
    };
    let before = state().await;
    begin_move(source, target).await;

    let token = LeaseToken::new("test", 1);
    let request = TakeRequest { queues: &[(QUEUE, 10)], token: &token, lease: LEASE, mode: TakeMode::Normal };
    let refused = [store.take(&request).await.map(drop), store.enqueue(&[due_now("tick:4")]).await.map(drop)];
    for error in refused.map(Result::unwrap_err) {
        assert!(matches!(error, StoreError::SlotMoving { .. }) && error.is_transient(), "{error}");
    }
    assert_eq!(state().await, before);
    // Commands with one key still work, on either node.
    assert!(store.epoch().await.unwrap().is_some());
    assert!(!store.pause_queue("another").await.unwrap());
    assert!(store.find_keys("{dq:0}:dead:*", "zset").await.unwrap().contains(&keys.dead_set(QUEUE)));
    raw::<()>(&source.url(), &["MIGRATE", "127.0.0.1", &target.port().to_string(), &keys.epoch(), "0", "5000"]).await;
    assert!(store.epoch().await.unwrap().is_some(), "asked of the node that takes the slot over");

    finish_move(source, target).await;
    assert!(matches!(store.take(&request).await.unwrap(), TakeAnswer::Jobs { .. }));
}

#[tokio::test]
async fn cluster_flush_stops_takes_until_rebuild() {
    let cluster = RedisCluster::start().await.unwrap();
    let store = Store::connect(&cluster.url()).await.unwrap();
    rebuild(&store).await;
    store.enqueue(&[due_now("tick:1")]).await.unwrap();
    let take = async || {
        let token = LeaseToken::new("test", 1);
        let request = TakeRequest { queues: &[(QUEUE, 10)], token: &token, lease: LEASE, mode: TakeMode::Normal };
        store.take(&request).await.unwrap()
    };
    let owner = &cluster.nodes()[owner(&cluster).await];
    raw::<()>(&owner.url(), &["FLUSHALL"]).await;
    store.enqueue(&[due_now("tick:2")]).await.unwrap();
    assert!(matches!(take().await, TakeAnswer::NoEpoch));
    rebuild(&store).await;
    let TakeAnswer::Jobs { jobs, .. } = take().await else { panic!("no epoch") };
    assert_eq!(jobs.len(), 1, "{jobs:?}");
}

/// The slot's owner is frozen: it is not dead and does not answer. The cluster votes it out, and calls go to its
/// replica.
#[tokio::test]
async fn frozen_master_is_replaced_by_its_replica() {
    let cluster = RedisCluster::start().await.unwrap();
    let store =
        Store::with_config(RedisConfig { response_timeout: secs(1), ..RedisConfig::new(cluster.url()) }).unwrap();
    rebuild(&store).await;
    store.enqueue(&[timer("tick:1", secs(900))]).await.unwrap();
    let owner = owner(&cluster).await;
    replicated(&cluster, owner, "tick:1").await;
    let frozen = cluster.nodes()[owner].pid();
    crate::process::signal(frozen, "STOP");
    eventually("enqueued", async || store.enqueue(&[timer("tick:2", secs(900))]).await.is_ok()).await;
    assert_eq!(store.queue_stats(&[QUEUE]).await.unwrap()[0].scheduled, 2);
    crate::process::signal(frozen, "CONT");
    // The old owner comes back with an outdated map, and soon becomes a replica. Reads do not go to it.
    eventually("a replica", async || !is_owner(&cluster.nodes()[owner]).await).await;
    assert_eq!(store.queue_stats(&[QUEUE]).await.unwrap()[0].scheduled, 2);
}

#[tokio::test]
async fn cluster_errors_name_outage_or_wrong_url() {
    let away = Store::with_config(RedisConfig::new("redis+cluster://user:secret@127.0.0.1:1")).unwrap();
    let error = away.ping().await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{text}");
    assert!(text.contains("the cluster of 127.0.0.1:1") && !text.contains("secret"), "{text}");

    let cluster = RedisCluster::start().await.unwrap();
    let other = &cluster.nodes()[(owner(&cluster).await + 1) % 3];
    let store = Store::connect(&other.url()).await.unwrap();
    let error = store.enqueue(&[due_now("tick:1")]).await.unwrap_err();
    assert!(matches!(error, StoreError::ClusterNode { .. }) && error.is_transient(), "{error}");
    assert!(error.to_string().contains("redis+cluster://"), "{error}");
}

/// Grants a producer the rights listed in jobs/README.md, on all nodes. Nodes that other nodes name use the same login.
#[tokio::test]
async fn producer_login_is_enough_on_a_cluster() {
    let readme = include_str!("../../../../jobs/README.md");
    let (_, rights) = readme.split_once("ACL SETUSER producer on >... ").unwrap();
    let (rights, rest) = rights.split_once("```").unwrap();
    let (_, more) = rest.split_once("In a cluster, on each node, also `").unwrap();
    let (more, _) = more.split_once('`').unwrap();
    let cluster = RedisCluster::start().await.unwrap();
    for node in cluster.nodes() {
        let user = ["ACL", "SETUSER", "producer", "on", ">secret"].into_iter();
        let words: Vec<&str> = user.chain(rights.split_whitespace()).chain(more.split_whitespace()).collect();
        raw::<()>(&node.url(), &words).await;
    }
    let seed = cluster.nodes()[(owner(&cluster).await + 1) % 3].port();
    let wrong =
        Store::with_config(RedisConfig::new(format!("redis+cluster://producer:wrong@127.0.0.1:{seed}"))).unwrap();
    let error = wrong.ping().await.unwrap_err();
    assert!(matches!(error, StoreError::Login { .. }), "{error}");
    let producer = Store::connect(&format!("redis+cluster://producer:secret@127.0.0.1:{seed}")).await.unwrap();
    let job = NewJob { queue: "dispatch-queue", ..due_now("dispatch:ORD-1:1") };
    producer.enqueue(std::slice::from_ref(&job)).await.unwrap();
    let due: Option<f64> =
        raw(&cluster.nodes()[owner(&cluster).await].url(), &["ZSCORE", "{dq:0}:due:dispatch-queue", job.id.as_str()])
            .await;
    assert!(due.is_some());
}

/// The nodes announce each other's TLS ports, and one authority signed all certificates.
#[tokio::test]
async fn cluster_works_with_a_private_authority() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut cluster = RedisCluster::start_with_tls().await.unwrap();
    let authority = std::fs::read(cluster.root_certificate().unwrap()).unwrap();
    let config = RedisConfig { root_certificate: Some(authority), ..RedisConfig::new(cluster.url()) };
    let store = Store::with_config(config).unwrap();
    rebuild(&store).await;
    let count = Arc::new(AtomicUsize::new(0));
    let worker = Worker::start(Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 16)]));
    enqueue_ticks(&store, 0..50).await;
    eventually("performed", async || count.load(Ordering::SeqCst) == 50).await;
    let owner = owner(&cluster).await;
    cluster.node_mut(owner).kill().await;
    enqueue_ticks(&store, 50..100).await;
    eventually("performed", async || count.load(Ordering::SeqCst) >= 100).await;
    worker.drain().await;

    let error = Store::connect(&cluster.url()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }) && error.to_string().contains("ertificate"), "{error}");
}
