//! Several shards as one queue: placement of jobs, the workers that run them, and isolation of a faulty shard.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use servers::{RedisCluster, RedisServer};
use tokio::sync::watch;

use crate::{
    process::signal,
    runtime::{Worker, counting},
    support::{LEASE, Letter, OTHER, QUEUE, Tick, eventually, id, raw, rebuild, secs, timer},
};
use queue::{
    JobAddress, Keys, NewJob, Outcome, RedisConfig, Registry, Runtime, ShardCount, Shards, Store,
    store::{
        CancelVerdict, DeadCursor, DeadEntry, DeadFilter, DeadRecord, DiscardVerdict, JobState, RepairVerdict,
        RequeueVerdict, RestoreVerdict, key_slot,
    },
};

const SHARDS: u16 = 4;

async fn shards_at(url: &str) -> Shards {
    let config = RedisConfig { response_timeout: secs(10), ..RedisConfig::new(url) };
    let shards = Shards::connect_lazy(&config, ShardCount::new(SHARDS).unwrap(), &["letter"]).unwrap();
    for store in shards.stores() {
        rebuild(store).await;
    }
    shards
}

fn ticks(numbers: impl IntoIterator<Item = u64>) -> Vec<NewJob> {
    numbers.into_iter().map(|n| NewJob::now(&Tick(n))).collect()
}

/// Returns the shard of `tick:n`.
fn shard_of(n: u64) -> u16 {
    ShardCount::new(SHARDS).unwrap().shard_of(&n.to_string())
}

/// Returns ticks whose shard matches.
fn ticks_where(wanted: impl Fn(u16) -> bool, count: usize) -> Vec<NewJob> {
    ticks((0..).filter(|n| wanted(shard_of(*n))).take(count))
}

async fn count_waiting(store: &Store) -> u64 {
    let stats = &store.queue_stats(&[QUEUE]).await.unwrap()[0];
    stats.due + stats.scheduled
}

#[tokio::test]
async fn jobs_are_stored_in_their_subjects_shard() {
    let redis = RedisServer::start().await.unwrap();
    let shards = shards_at(&redis.url()).await;
    let later: Vec<NewJob> = (0..200).map(|n| timer(&format!("tick:{n}"), secs(900))).collect();
    let again: Vec<NewJob> = (0..200).map(|n| timer(&format!("tock:{n}:7"), secs(900))).collect();
    shards.enqueue(&later).await.unwrap();
    shards.enqueue(&again).await.unwrap();
    shards.enqueue(&[NewJob::now(&Letter(1, "x".to_owned()))]).await.unwrap();
    for n in 0..200 {
        let keys = Keys::of_shard(shard_of(n));
        for member in [format!("tick:{n}"), format!("tock:{n}:7")] {
            let due: Option<f64> = raw(&redis.url(), &["ZSCORE", &keys.due_set(QUEUE), &member]).await;
            assert!(due.is_some(), "{member} is with its subject");
        }
    }
    let due: u64 = raw(&redis.url(), &["ZCARD", "{dq:0}:due:others"]).await;
    assert_eq!(due, 1, "kinds of the control shard lie there");
    for store in shards.stores() {
        assert!(count_waiting(store).await > 60, "they are spread");
    }
    let stats = &shards.queue_stats(&[QUEUE]).await.unwrap()[0];
    assert_eq!((stats.scheduled, stats.due), (400, 0));

    let found = shards.find_job(&id("tick:3"), &[QUEUE]).await.unwrap().unwrap();
    assert_eq!(found.state, JobState::Due);
    // Here the job is in another shard, as after a change of the number of shards.
    let elsewhere = &shards.stores()[usize::from((shard_of(1_000) + 1) % SHARDS)];
    elsewhere.enqueue(&[timer("tick:1000", secs(900))]).await.unwrap();
    assert!(shards.find_job(&id("tick:1000"), &[QUEUE]).await.unwrap().is_some());
    assert_eq!(shards.cancel(&id("tick:1000"), &[QUEUE]).await.unwrap(), CancelVerdict::Removed);
    assert_eq!(shards.cancel(&id("tick:1000"), &[QUEUE]).await.unwrap(), CancelVerdict::Absent);
    assert!(shards.pause_queue(QUEUE).await.unwrap() && !shards.pause_queue(QUEUE).await.unwrap());
    assert!(shards.queue_stats(&[QUEUE]).await.unwrap()[0].paused);
    assert!(shards.resume_queue(QUEUE).await.unwrap());
}

#[tokio::test]
async fn one_worker_serves_all_shards() {
    let redis = RedisServer::start().await.unwrap();
    let shards = shards_at(&redis.url()).await;
    let performed = Arc::new(AtomicUsize::new(0));
    let seen = performed.clone();
    // Every tick below 300 has a follow-up of another subject and cancels a timer of a third one.
    let registry = Registry::new().register::<Tick, _, _>(move |tick, _| {
        let seen = seen.clone();
        async move {
            seen.fetch_add(1, Ordering::SeqCst);
            if tick.0 >= 300 {
                return Outcome::done();
            }
            let superseded = vec![JobAddress { queue: QUEUE, id: id(&format!("tick:{}", tick.0 + 2_000)) }];
            Outcome::Done { then: ticks([tick.0 + 1_000]), superseded }
        }
    });
    let ended: Vec<NewJob> = (2_000..2_300).map(|n| timer(&format!("tick:{n}"), secs(900))).collect();
    shards.enqueue(&ended).await.unwrap();
    let worker = Worker::start(Runtime::new(shards.clone(), registry).queues([(QUEUE, 16)]));
    shards.enqueue(&ticks(0..300)).await.unwrap();
    eventually("all performed", async || performed.load(Ordering::SeqCst) == 600).await;
    eventually("settled", async || {
        let stats = &shards.queue_stats(&[QUEUE]).await.unwrap()[0];
        stats.leased + stats.due + stats.scheduled == 0
    })
    .await;
    let summary = worker.drain().await;
    assert_eq!((summary.settled, summary.refused), (600, 0));
}

#[tokio::test]
async fn operators_see_all_shards_as_one_queue() {
    let redis = RedisServer::start().await.unwrap();
    let shards = shards_at(&redis.url()).await;
    let later: Vec<NewJob> = (0..1_500).map(|n| timer(&format!("tick:{n}"), secs(900 + n))).collect();
    shards.enqueue(&later).await.unwrap();
    let page = shards.list_jobs(QUEUE, JobState::Due, 1_200, 50).await.unwrap();
    let ids: Vec<&str> = page.iter().map(|entry| entry.id.as_str()).collect();
    assert_eq!(ids, (1_200..1_250).map(|n| format!("tick:{n}")).collect::<Vec<_>>());

    // More than one page per shard, and some that died in the same millisecond.
    let dead: Vec<DeadEntry> = (0..4_400).map(|n| dead_entry(&format!("tick:{}", 5_000 + n), 1_000 + n / 3)).collect();
    assert!(shards.restore_dead(QUEUE, &dead).await.unwrap().iter().all(|one| *one == RestoreVerdict::Restored));
    assert_eq!(shards.queue_stats(&[QUEUE]).await.unwrap()[0].dead, 4_400);
    let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = shards.list_dead(QUEUE, &DeadFilter::default(), after.as_ref()).await.unwrap();
        seen.extend(page.entries);
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut expected: Vec<DeadCursor> = dead.iter().map(DeadEntry::cursor).collect();
    expected.sort();
    assert_eq!(seen.iter().map(DeadEntry::cursor).collect::<Vec<_>>(), expected, "each once, in their order");
    assert!(pages > 2, "{pages}");

    let some = ["tick:5000", "tick:5001", "tick:5002", "tick:5003", "tick:1"];
    let requeued = shards.requeue(&some, &[QUEUE], secs(900)).await.unwrap();
    assert_eq!(requeued.iter().filter(|one| **one == RequeueVerdict::Requeued).count(), 4);
    assert_eq!(requeued[4], RequeueVerdict::NotDead);
    let discarded = shards.discard(&["tick:5004", "tick:5000"], &[QUEUE]).await.unwrap();
    assert_eq!(discarded, [DiscardVerdict::Discarded, DiscardVerdict::NotDead]);
    assert_eq!(shards.discard_dead_older_than(QUEUE, secs(1), 450).await.unwrap(), 450);
    assert_eq!(shards.queue_stats(&[QUEUE]).await.unwrap()[0].dead, 4_400 - 4 - 1 - 450);
}

fn dead_entry(id: &str, died_ms: u64) -> DeadEntry {
    let record = DeadRecord {
        queue: QUEUE.to_owned(),
        error: "its own".to_owned(),
        failed: 1,
        lost: 0,
        due_ms: 1,
        died_ms,
        payload: serde_json::Value::Null,
        envelope: None,
    };
    DeadEntry { id: id.to_owned(), record }
}

/// The number of shards changes from one to four to two, without copies or pauses. The application inserts each job
/// into its new shard; a job in an old shard runs there, too, or has run.
#[tokio::test]
async fn shard_count_changes_while_workers_run() {
    let redis = RedisServer::start().await.unwrap();
    let config = RedisConfig::new(redis.url());
    let count = |n| ShardCount::new(n).unwrap();
    let performed: Arc<[AtomicUsize]> = (0..400).map(|_| AtomicUsize::new(0)).collect();
    let registry = || {
        let performed = performed.clone();
        Registry::new().register::<Tick, _, _>(move |tick, _| {
            let performed = performed.clone();
            async move {
                performed[usize::try_from(tick.0).unwrap()].fetch_add(1, Ordering::SeqCst);
                Outcome::done()
            }
        })
    };
    let one = Shards::connect_lazy(&config, count(1), &[]).unwrap();
    rebuild(one.control()).await;
    // A worker that still uses the old number.
    let old = Worker::start(Runtime::new(one.clone(), registry()).queues([(QUEUE, 8)]));
    let jobs: Vec<NewJob> = (0..400).map(|n| timer(&format!("tick:{n}"), secs(900))).collect();
    one.enqueue(&jobs).await.unwrap();

    let four = Shards::connect_lazy_after(&config, count(4), count(1), &[]).unwrap();
    for store in &four.stores()[1..] {
        rebuild(store).await;
    }
    assert!(four.repair(&jobs).await.unwrap().contains(&RepairVerdict::Inserted));
    for store in &four.stores()[1..] {
        assert!(count_waiting(store).await > 60);
    }
    assert_eq!(count_waiting(four.control()).await, 400, "nothing was taken away");
    assert_eq!(four.count_left_over(&[QUEUE]).await.unwrap(), 0);

    let two = Shards::connect_lazy_after(&config, count(2), count(4), &[]).unwrap();
    two.repair(&jobs).await.unwrap();
    assert!(two.count_left_over(&[QUEUE]).await.unwrap() > 120);
    let new = Worker::start(Runtime::new(two.clone(), registry()).queues([(QUEUE, 8)]));
    // All jobs become due, in whichever shard they are.
    for store in two.stores() {
        let ids: Vec<String> = raw(&redis.url(), &["ZRANGE", &store.keys().due_set(QUEUE), "0", "-1"]).await;
        for id_text in ids {
            store.reschedule(&id(&id_text), &[QUEUE], std::time::Duration::ZERO).await.unwrap();
        }
    }
    eventually("all shards are empty", async || {
        let stats = &two.queue_stats(&[QUEUE]).await.unwrap()[0];
        stats.due + stats.scheduled + stats.leased == 0
    })
    .await;
    assert!(performed.iter().all(|times| (1..=3).contains(&times.load(Ordering::SeqCst))), "once per place at most");
    assert_eq!(two.count_left_over(&[QUEUE]).await.unwrap(), 0);
    assert_eq!(old.drain().await.refused + new.drain().await.refused, 0);
}

/// Shards are opened, closed and opened again during one run. A connection keeps the order of its calls, so the take
/// before a shard is closed does not see jobs that arrive later.
#[tokio::test]
async fn worker_follows_the_shard_count() {
    let redis = RedisServer::start().await.unwrap();
    let count = |n| ShardCount::new(n).unwrap();
    let one = Shards::from(Store::connect(&redis.url()).await.unwrap());
    let four = one.resize(count(SHARDS), count(1)).unwrap();
    for store in four.stores() {
        rebuild(store).await;
    }
    let performed = Arc::new(AtomicUsize::new(0));
    let done = async |expected| {
        eventually("performed", async || performed.load(Ordering::SeqCst) == expected).await;
    };
    let (shards, follow) = watch::channel(one.clone());
    let runtime = Runtime::new(one, counting(&performed)).queues([(QUEUE, 8)]).follow_shards(follow);
    let worker = Worker::start(runtime);
    four.enqueue(&ticks_where(|shard| shard == 0, 50)).await.unwrap();
    four.enqueue(&ticks_where(|shard| shard != 0, 150)).await.unwrap();
    done(50).await;
    assert_eq!(four.queue_stats(&[QUEUE]).await.unwrap()[0].due, 150, "they are not open yet");
    shards.send_replace(four.clone());
    done(200).await;

    shards.send_replace(four.resize(count(2), count(2)).unwrap());
    four.enqueue(&ticks_where(|shard| shard > 1, 60)).await.unwrap();
    four.enqueue(&ticks_where(|shard| shard < 2, 40)).await.unwrap();
    done(240).await;
    assert_eq!(four.queue_stats(&[QUEUE]).await.unwrap()[0].due, 60, "they are closed");
    shards.send_replace(four.clone());
    done(300).await;
    let summary = worker.drain().await;
    assert_eq!((summary.settled, summary.refused), (300, 0));
}

/// Workers prefer different shards, and none owns one.
#[tokio::test]
async fn idle_workers_take_from_the_busy_shard() {
    let redis = RedisServer::start().await.unwrap();
    let shards = shards_at(&redis.url()).await;
    let (first, second) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let start =
        |count: &Arc<AtomicUsize>| Worker::start(Runtime::new(shards.clone(), counting(count)).queues([(QUEUE, 2)]));
    let workers = [start(&first), start(&second)];
    for shard in 0..SHARDS {
        let before = (first.load(Ordering::SeqCst), second.load(Ordering::SeqCst));
        let jobs = ticks_where(|of| of == shard, 2_000);
        shards.enqueue(&jobs).await.unwrap();
        eventually("all performed", async || {
            first.load(Ordering::SeqCst) + second.load(Ordering::SeqCst) == before.0 + before.1 + 2_000
        })
        .await;
        assert!(first.load(Ordering::SeqCst) > before.0 && second.load(Ordering::SeqCst) > before.1, "both took some");
    }
    for worker in workers {
        assert_eq!(worker.drain().await.refused, 0);
    }
}

#[tokio::test]
async fn flushed_shard_leaves_the_others_running() {
    let redis = RedisServer::start().await.unwrap();
    let shards = shards_at(&redis.url()).await;
    let count = Arc::new(AtomicUsize::new(0));
    let missing = Arc::new(tokio::sync::Notify::new());
    let runtime = Runtime::new(shards.clone(), counting(&count)).queues([(QUEUE, 16)]);
    let worker = Worker::start(runtime.on_missing_epoch(missing.clone()));
    let lost: Vec<String> = raw(&redis.url(), &["KEYS", "{dq:2}:*"]).await;
    let words: Vec<&str> = ["DEL"].into_iter().chain(lost.iter().map(String::as_str)).collect();
    raw::<()>(&redis.url(), &words).await;
    shards.enqueue(&ticks_where(|shard| shard == 2, 50)).await.unwrap();
    shards.enqueue(&ticks_where(|shard| shard != 2, 200)).await.unwrap();
    missing.notified().await;
    eventually("the others are done", async || count.load(Ordering::SeqCst) == 200).await;
    assert_eq!(count_waiting(&shards.stores()[2]).await, 50, "nothing is taken from it until it is rebuilt");
    rebuild(&shards.stores()[2]).await;
    eventually("all are done", async || count.load(Ordering::SeqCst) == 250).await;
    worker.drain().await;
}

/// A master and its replica are frozen, so no failover helps.
#[tokio::test]
async fn silent_shard_delays_no_other() {
    let cluster = RedisCluster::start().await.unwrap();
    let shards = shards_at(&cluster.url()).await;
    let node_of = |shard| RedisCluster::first_owner(key_slot(Keys::of_shard(shard).epoch().as_bytes()));
    let nodes: BTreeSet<usize> = (0..SHARDS).map(node_of).collect();
    assert!(nodes.len() > 1, "the shards lie on several masters");
    let count = Arc::new(AtomicUsize::new(0));
    let worker = Worker::start(Runtime::new(shards.clone(), counting(&count)).queues([(QUEUE, 8)]));
    shards.enqueue(&ticks(0..100)).await.unwrap();
    eventually("performed", async || count.load(Ordering::SeqCst) == 100).await;

    // Not the control shard's node, which gets the heartbeats.
    let away = (1..SHARDS).map(node_of).find(|node| *node != node_of(0)).unwrap();
    let frozen = [away, away + 3].map(|node| cluster.nodes()[node].pid());
    frozen.iter().for_each(|pid| signal(*pid, "STOP"));
    let answering = |shard| node_of(shard) != away;
    // Longer than the timeout of a call and than a lease.
    let begun = std::time::Instant::now();
    let mut n = 0;
    while begun.elapsed() < LEASE + secs(1) {
        let before = count.load(Ordering::SeqCst);
        let jobs: Vec<NewJob> = ticks((10_000 + n..).filter(|n| answering(shard_of(*n))).take(50));
        n += 1_000;
        eventually("enqueued", async || shards.enqueue(&jobs).await.is_ok()).await;
        eventually("performed", async || count.load(Ordering::SeqCst) == before + 50).await;
    }
    frozen.iter().for_each(|pid| signal(*pid, "CONT"));
    let before = count.load(Ordering::SeqCst);
    let jobs = ticks((500_000..).filter(|n| !answering(shard_of(*n))).take(50));
    eventually("enqueued", async || shards.enqueue(&jobs).await.is_ok()).await;
    eventually("performed", async || count.load(Ordering::SeqCst) >= before + 50).await;
    worker.drain().await;
}

/// Suspects run one at a time and alone, whatever their shards.
#[tokio::test]
async fn suspects_of_all_shards_run_alone() {
    let redis = RedisServer::start().await.unwrap();
    let shards = shards_at(&redis.url()).await;
    let suspects: Vec<u64> = (0..SHARDS).map(|shard| (0..).find(|n| shard_of(*n) == shard).unwrap()).collect();
    for n in &suspects {
        let keys = Keys::of_shard(shard_of(*n));
        let member = format!("tick:{n}");
        raw::<()>(&redis.url(), &["ZADD", &keys.suspect_set(QUEUE), "1", &member]).await;
        raw::<()>(&redis.url(), &["HSET", &keys.job_tries(), &member, "0 2"]).await;
    }
    let running = Arc::new(AtomicUsize::new(0));
    let (normal, alone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = (running, normal.clone(), alone.clone());
    let registry = Registry::new().register::<Tick, _, _>(move |_, delivery| {
        let (running, normal, alone) = seen.clone();
        async move {
            let beside = running.fetch_add(1, Ordering::SeqCst);
            if delivery.lost >= 2 {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                let is_alone = beside == 0 && running.load(Ordering::SeqCst) == 1;
                alone.fetch_add(usize::from(is_alone), Ordering::SeqCst);
            } else {
                tokio::task::yield_now().await;
                normal.fetch_add(1, Ordering::SeqCst);
            }
            running.fetch_sub(1, Ordering::SeqCst);
            Outcome::done()
        }
    });
    shards.enqueue(&ticks((1_000..).filter(|n| !suspects.contains(n)).take(3_000))).await.unwrap();
    let worker = Worker::start(Runtime::new(shards.clone(), registry).queues([(QUEUE, 8), (OTHER, 8)]));
    eventually("normal jobs are done", async || normal.load(Ordering::SeqCst) == 3_000).await;
    eventually("suspects are done", async || {
        let stats = &shards.queue_stats(&[QUEUE]).await.unwrap()[0];
        stats.suspects + stats.leased == 0
    })
    .await;
    assert_eq!(alone.load(Ordering::SeqCst), suspects.len());
    worker.drain().await;
}

#[tokio::test]
async fn drain_returns_waiting_jobs_to_each_shard() {
    let redis = RedisServer::start().await.unwrap();
    let shards = shards_at(&redis.url()).await;
    let started = Arc::new(AtomicUsize::new(0));
    let seen = started.clone();
    let registry = Registry::new().register::<Letter, _, _>(|_, _| async { Outcome::done() }).register::<Tick, _, _>(
        move |_, _| {
            let seen = seen.clone();
            async move {
                seen.fetch_add(1, Ordering::SeqCst);
                Outcome::Snooze { delay: secs(900) }
            }
        },
    );
    shards.enqueue(&ticks(0..400)).await.unwrap();
    let worker = Worker::start(Runtime::new(shards.clone(), registry).queues([(QUEUE, 8)]));
    eventually("some have run", async || started.load(Ordering::SeqCst) > 50).await;
    let summary = worker.drain().await;
    let stats = &shards.queue_stats(&[QUEUE]).await.unwrap()[0];
    assert_eq!((stats.leased, stats.due + stats.scheduled, summary.refused), (0, 400, 0));
}
