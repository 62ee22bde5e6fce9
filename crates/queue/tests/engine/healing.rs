//! Recovery of the engine, with real processes and a real Redis.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

use tokio::sync::Notify;

use crate::{
    process::{FOLLOW_UP, POISON, Process, signal},
    runtime::{Worker, counting},
    support::{Letter, OTHER, QUEUE, Tick, due_now, eventually, id, raw, rebuild, secs, timer},
};
use queue::{
    Job, LeaseToken, Limit, NewJob, Outcome, Registry, Runtime, Store, StoreError, run_limited,
    store::{CancelVerdict, JobState, RequeueVerdict, RescheduleVerdict, TakeMode, TakeRequest},
};

async fn redis_and_store() -> (servers::RedisServer, Store) {
    let redis = servers::RedisServer::start().await.unwrap();
    let store = Store::connect(&redis.url()).await.unwrap();
    rebuild(&store).await;
    (redis, store)
}

fn ticks(numbers: std::ops::Range<u64>) -> Vec<NewJob> {
    numbers.map(|n| NewJob::now(&Tick(n))).collect()
}

/// Expires all leases of a queue, and the turn to run suspects, by setting their times.
async fn expire_leases(redis: &servers::RedisServer, queue: &str) {
    let key = format!("{{dq:0}}:leased:{queue}");
    let leased: Vec<String> = raw(&redis.url(), &["ZRANGE", &key, "0", "-1"]).await;
    for some in leased.chunks(1_000) {
        let words = ["ZADD", &key, "XX"].into_iter().chain(some.iter().flat_map(|id| ["1", id]));
        raw::<()>(&redis.url(), &words.collect::<Vec<_>>()).await;
    }
    raw::<()>(&redis.url(), &["DEL", "{dq:0}:suspect_turn"]).await;
}

#[tokio::test]
async fn process_frozen_past_its_lease_is_refused() {
    let (redis, store) = redis_and_store().await;
    let still = Process::start(&redis.url());
    store.enqueue(&[NewJob::now(&Letter(1, "x".to_owned()))]).await.unwrap();
    let lease = async || store.find_job(&id("letter:1"), &[OTHER]).await.unwrap();
    eventually("it runs", async || lease().await.unwrap().state == JobState::Leased).await;
    let first = lease().await.unwrap().token;
    still.signal("STOP");

    let (taken, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let seen = (taken.clone(), go_on.clone());
    let registry = Registry::new().register::<Letter, _, _>(move |_, delivery| {
        let (taken, go_on) = seen.clone();
        async move {
            assert_eq!(delivery.lost, 1);
            taken.notify_one();
            go_on.notified().await;
            Outcome::done()
        }
    });
    let other = Worker::start(Runtime::new(store.clone(), registry).queues([(OTHER, 4)]));
    taken.notified().await;
    assert_ne!(lease().await.unwrap().token, first);

    still.signal("CONT");
    eventually("it has come to its end", async || {
        let workers = store.list_workers().await.unwrap();
        let pid = std::process::id();
        workers.iter().any(|worker| worker.info.pid != pid && worker.info.in_hand == 0 && worker.seen_ms_ago < 3_000)
    })
    .await;
    // Meanwhile the other process renews its lease, on this thread.
    let said = tokio::task::spawn_blocking(|| still.drain()).await.unwrap();
    assert!(said.contains("settled: 0, refused: 1, released: 0"), "{said}");
    assert_eq!(lease().await.unwrap().state, JobState::Leased, "the other's lease is untouched");
    assert!(store.find_job(&id(FOLLOW_UP), &[QUEUE]).await.unwrap().is_none(), "its follow-up was not inserted");
    go_on.notify_one();
    eventually("done", async || lease().await.is_none()).await;
    assert_eq!(other.drain().await.settled, 1);
}

// Fault F15
/// At a hundred jobs per second this would take half a minute.
#[tokio::test]
async fn rescued_jobs_run_as_permits_allow() {
    let (redis, store) = redis_and_store().await;
    store.enqueue(&ticks(0..3_000)).await.unwrap();
    for sequence in 0..3 {
        let token = LeaseToken::new("dead", sequence);
        let request = TakeRequest { queues: &[(QUEUE, 1_000)], token: &token, lease: secs(8), mode: TakeMode::Normal };
        store.take(&request).await.unwrap();
    }
    assert_eq!(store.queue_stats(&[QUEUE]).await.unwrap()[0].leased, 3_000);
    expire_leases(&redis, QUEUE).await;
    let count = Arc::new(AtomicUsize::new(0));
    // The worker that rescues has few permits, the other one has many.
    let few = Worker::start(Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 1)]));
    let many = Worker::start(Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 64)]));
    eventually("all have run", async || count.load(Ordering::SeqCst) == 3_000).await;
    few.drain().await;
    many.drain().await;
}

#[tokio::test]
async fn job_killing_five_processes_is_dead() {
    let (redis, store) = redis_and_store().await;
    let jobs: Vec<NewJob> = ticks(0..20).into_iter().chain([NewJob::now(&Tick(POISON))]).collect();
    store.enqueue(&jobs).await.unwrap();
    let poison = Tick(POISON).id();
    for lost in 1..=5 {
        let process = Process::start(&redis.url());
        eventually("it has killed its process", async || process.has_ended()).await;
        let died = store.find_job(&poison, &[QUEUE]).await.unwrap().unwrap();
        assert_eq!((died.state, died.lost), (JobState::Leased, lost - 1));
        expire_leases(&redis, QUEUE).await;
    }
    let last = Process::start(&redis.url());
    eventually("the poison is dead", async || {
        let stats = &store.queue_stats(&[QUEUE]).await.unwrap()[0];
        (stats.due, stats.leased, stats.dead) == (0, 0, 1)
    })
    .await;
    last.drain();
    let record = store.find_job(&poison, &[QUEUE]).await.unwrap().unwrap().dead.unwrap();
    assert_eq!(record.lost, 5);
    for n in 0..20 {
        let performed: Option<u32> = raw(&redis.url(), &["GET", &format!("performed:{n}")]).await;
        assert!(performed.is_some(), "tick {n}");
    }
}

#[tokio::test]
async fn always_failing_handler_kills_only_its_job() {
    let (_redis, store) = redis_and_store().await;
    let performed = Arc::new(Mutex::new(HashSet::new()));
    let seen = performed.clone();
    let registry = Registry::new().register::<Tick, _, _>(move |tick, _| {
        let seen = seen.clone();
        async move {
            match tick.0 % 10 {
                0 => panic!("always"),
                1 => std::future::pending().await,
                _ => {
                    seen.lock().unwrap().insert(tick.0);
                    Outcome::done()
                }
            }
        }
    });
    store.enqueue(&ticks(0..100)).await.unwrap();
    let worker = Worker::start(Runtime::new(store.clone(), registry).queues([(QUEUE, 8)]));
    eventually("at rest", async || {
        let stats = &store.queue_stats(&[QUEUE]).await.unwrap()[0];
        (stats.due + stats.scheduled + stats.leased, stats.dead) == (0, 20)
    })
    .await;
    worker.drain().await;
    assert_eq!(performed.lock().unwrap().len(), 80);
}

#[tokio::test]
async fn cut_connections_cost_no_job() {
    let (redis, store) = redis_and_store().await;
    let performed = Arc::new(Mutex::new(HashSet::new()));
    let seen = performed.clone();
    let registry = Registry::new().register::<Tick, _, _>(move |tick, _| {
        let seen = seen.clone();
        async move {
            tokio::task::yield_now().await;
            seen.lock().unwrap().insert(tick.0);
            Outcome::done()
        }
    });
    let worker = Worker::start(Runtime::new(store.clone(), registry).queues([(QUEUE, 32)]));
    for batch in 0..20 {
        let jobs = ticks(batch * 100..(batch + 1) * 100);
        eventually("enqueued", async || store.enqueue(&jobs).await.is_ok()).await;
        raw::<()>(&redis.url(), &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        raw::<()>(&redis.url(), &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    }
    eventually("all performed", async || {
        let Ok(stats) = store.queue_stats(&[QUEUE]).await else { return false };
        stats[0].due + stats[0].leased == 0 && performed.lock().unwrap().len() == 2_000
    })
    .await;
    worker.drain().await;
}

/// The server is stopped, as in a slow command, while a job runs and another becomes due.
#[tokio::test]
async fn five_second_server_pause_costs_no_lease() {
    let (redis, store) = redis_and_store().await;
    let (running, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let seen = (running.clone(), go_on.clone());
    let registry = Registry::new()
        .register::<Letter, _, _>(move |_, _| {
            let (running, go_on) = seen.clone();
            async move {
                running.notify_one();
                go_on.notified().await;
                Outcome::then_enqueue(ticks(1..2))
            }
        })
        .register::<Tick, _, _>(|_, _| async { Outcome::done() });
    let worker = Worker::start(Runtime::new(store.clone(), registry).queues([(OTHER, 4), (QUEUE, 4)]));
    let jobs = [NewJob::now(&Letter(1, "x".to_owned())), NewJob::after(&Tick(9), secs(2))];
    store.enqueue(&jobs).await.unwrap();
    running.notified().await;
    signal(redis.pid(), "STOP");
    go_on.notify_one();
    tokio::time::sleep(secs(5)).await;
    signal(redis.pid(), "CONT");
    eventually("all done", async || {
        let Ok(stats) = store.queue_stats(&[QUEUE, OTHER]).await else { return false };
        stats.iter().all(|queue| queue.due + queue.scheduled + queue.leased == 0)
    })
    .await;
    let summary = worker.drain().await;
    assert_eq!((summary.settled, summary.refused), (3, 0));
}

#[tokio::test]
async fn full_redis_refuses_new_jobs_and_finishes_old() {
    let (redis, store) = redis_and_store().await;
    let fill = async |bytes: &str| raw::<()>(&redis.url(), &["CONFIG", "SET", "maxmemory", bytes]).await;
    let registry = Registry::new()
        .register::<Letter, _, _>({
            let store = store.clone();
            move |letter, _| {
                let store = store.clone();
                async move {
                    let work = async || match letter.0 {
                        0 => Outcome::Dead("its own".to_owned()),
                        n => Outcome::then_enqueue(vec![NewJob::now(&Tick(n))]),
                    };
                    run_limited(&store, &[Limit::slots("acme", 3)], work).await
                }
            }
        })
        .register::<Tick, _, _>(|_, delivery| async move {
            if delivery.failed == 0 { Outcome::Retry("once more".to_owned()) } else { Outcome::done() }
        });
    let letters: Vec<NewJob> = (0..10).map(|n| NewJob::now(&Letter(n, "x".to_owned()))).collect();
    store.enqueue(&letters).await.unwrap();
    store.enqueue(&[timer("tick:50", secs(900)), timer("tick:51", secs(900))]).await.unwrap();
    fill("1").await;

    for refused in [store.enqueue(&[due_now("tick:60")]).await.err(), store.repair(&[due_now("tick:61")]).await.err()] {
        let error = refused.unwrap();
        assert!(matches!(error, StoreError::Full { .. }) && error.is_transient(), "{error}");
        assert!(error.to_string().contains("raise its maxmemory"), "{error}");
    }
    let worker = Worker::start(Runtime::new(store.clone(), registry).queues([(OTHER, 4), (QUEUE, 4)]));
    eventually("all came to its end", async || {
        let stats = store.queue_stats(&[OTHER, QUEUE]).await.unwrap();
        let at_rest = stats.iter().all(|queue| queue.due + queue.leased == 0);
        at_rest && (stats[0].scheduled, stats[0].dead, stats[1].scheduled) == (0, 1, 2)
    })
    .await;
    assert_eq!(store.list_workers().await.unwrap().len(), 1, "signs of life go on");
    let both = [QUEUE, OTHER];
    assert_eq!(store.reschedule(&id("tick:50"), &both, secs(800)).await.unwrap(), RescheduleVerdict::Moved);
    assert_eq!(store.cancel(&id("tick:51"), &both).await.unwrap(), CancelVerdict::Removed);
    assert_eq!(store.requeue(&["letter:0"], &both, secs(900)).await.unwrap(), [RequeueVerdict::Requeued]);
    let summary = worker.drain().await;
    assert_eq!((summary.refused, summary.released), (0, 0));

    fill("0").await;
    assert!(store.enqueue(&[due_now("tick:60")]).await.is_ok());
}

#[tokio::test]
async fn two_processes_may_share_one_name() {
    let (_redis, store) = redis_and_store().await;
    let (first, second) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let start = |count: &Arc<AtomicUsize>| {
        Worker::start(Runtime::new(store.clone(), counting(count)).queues([(QUEUE, 1)]).name("twin a"))
    };
    let (a, b) = (start(&first), start(&second));
    let names = async || {
        let workers = store.list_workers().await.unwrap();
        workers.into_iter().map(|worker| worker.replica).collect::<Vec<_>>()
    };
    eventually("both listed", async || names().await == ["twin a", "twin a"]).await;
    let next = AtomicUsize::new(0);
    eventually("both work", async || {
        let n = next.fetch_add(50, Ordering::SeqCst) as u64;
        store.enqueue(&ticks(n..n + 50)).await.unwrap();
        first.load(Ordering::SeqCst) > 0 && second.load(Ordering::SeqCst) > 0
    })
    .await;
    a.drain().await;
    assert_eq!(names().await, ["twin a"], "the one that leaves does not take the other along");
    b.drain().await;
    assert!(names().await.is_empty());
}

#[tokio::test]
async fn twenty_thousand_due_jobs_are_performed() {
    let (_redis, store) = redis_and_store().await;
    let count = Arc::new(AtomicUsize::new(0));
    store.enqueue(&ticks(0..20_000)).await.unwrap();
    let begun = std::time::Instant::now();
    let worker = Worker::start(Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 256)]));
    eventually("all performed", async || count.load(Ordering::SeqCst) == 20_000).await;
    assert!(begun.elapsed() < secs(15), "{:?}", begun.elapsed());
    assert_eq!(worker.drain().await.settled, 20_000);
}

/// Returns the number of commands from clients, without those inside scripts.
async fn client_commands(redis: &servers::RedisServer) -> u64 {
    let stats: String = raw(&redis.url(), &["INFO", "commandstats"]).await;
    let calls = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
    let evalsha = stats.lines().filter(|line| line.starts_with("cmdstat_evalsha:"));
    let plain = stats.lines().filter(|line| {
        ["subscribe", "ping", "get", "info", "script"].iter().any(|name| line.starts_with(&format!("cmdstat_{name}:")))
    });
    evalsha.chain(plain).filter_map(calls).sum()
}

#[tokio::test]
async fn idle_fleet_sends_few_commands() {
    const QUEUES: [&str; 6] = ["q1", "q2", "q3", "q4", "q5", "q6"];
    let (redis, store) = redis_and_store().await;
    let mut workers = Vec::new();
    for _ in 0..8 {
        let store = Store::connect(&redis.url()).await.unwrap();
        workers.push(Worker::start(Runtime::new(store, Registry::new()).queues(QUEUES.map(|queue| (queue, 8)))));
    }
    eventually("all run", async || store.list_workers().await.unwrap().len() == 8).await;
    let before = client_commands(&redis).await;
    let begun = Instant::now();
    tokio::time::sleep(secs(4)).await;
    #[expect(clippy::cast_precision_loss, reason = "some hundreds")]
    let per_second = (client_commands(&redis).await - before) as f64 / begun.elapsed().as_secs_f64();
    println!("8 idle processes with 6 queues: {per_second:.1} commands per second");
    assert!(per_second < 50.0, "{per_second}");
    for worker in workers {
        worker.drain().await;
    }
}

/// Redis' clock decides about delays, so a worker whose own clock is an hour off works normally.
#[test]
fn engine_reads_no_wall_clock() {
    let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    let found = AtomicBool::new(false);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            found.store(true, Ordering::SeqCst);
            let text = std::fs::read_to_string(&path).unwrap();
            for clock in ["SystemTime", "UNIX_EPOCH", "Utc::now", "Local::now", "os.time", "os.date"] {
                assert!(!text.contains(clock), "{} reads {clock}", path.display());
            }
        }
    }
    assert!(found.into_inner());
}
