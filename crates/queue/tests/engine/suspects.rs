//! The turn to run suspects: one process of the fleet has it, and divides its time between suspects and normal jobs.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::sync::Notify;

use crate::{
    runtime::Worker,
    support::{
        Bench, LEASE, Letter, OTHER, QUEUE, START_MS, Tick, due_now, eventually, id, millis, raw, rebuild, secs, timer,
    },
};
use queue::{
    LeaseToken, NewJob, Outcome, Registry, Runtime, Store,
    store::{
        CancelVerdict, EnqueueVerdict, JobState, LeaseEnd, RepairVerdict, RescheduleVerdict, TakeAnswer, TakeMode,
        TakeRequest,
    },
};

/// Takes as process `boot`. Returns the number of leased jobs, whether suspects are due, and whether the process has
/// the turn.
async fn ask(bench: &Bench, boot: &str, mode: TakeMode) -> (usize, bool, bool) {
    let token = LeaseToken::new(boot, 1);
    let request = TakeRequest { queues: &[(QUEUE, 5)], token: &token, lease: LEASE, mode };
    let TakeAnswer::Jobs { jobs, suspects, has_turn, .. } = bench.store.take(&request).await.unwrap() else {
        panic!("no epoch")
    };
    (jobs.len(), suspects, has_turn)
}

async fn suspect(bench: &Bench, name: &str) {
    bench.redis::<()>(&["ZADD", "{dq:0}:suspects:timers", &START_MS.to_string(), name]).await;
    bench.redis::<()>(&["HSET", "{dq:0}:tries", name, "0 2"]).await;
}

#[tokio::test]
async fn one_process_holds_the_turn_for_a_lease() {
    let bench = Bench::new().await;
    assert_eq!(ask(&bench, "a", TakeMode::Normal).await, (0, false, false));
    suspect(&bench, "t:poison").await;
    assert_eq!(ask(&bench, "a", TakeMode::Normal).await, (0, true, true));
    assert_eq!(ask(&bench, "b", TakeMode::Normal).await, (0, true, false));
    bench.advance(LEASE - millis(1));
    assert_eq!(ask(&bench, "b", TakeMode::Normal).await, (0, true, false));
    assert_eq!(ask(&bench, "a", TakeMode::Quiesce).await, (0, true, true));
    bench.advance(LEASE - millis(1));
    assert_eq!(ask(&bench, "b", TakeMode::Normal).await, (0, true, false));
    bench.advance(millis(1));
    assert_eq!(ask(&bench, "b", TakeMode::Normal).await, (0, true, true));
    assert_eq!(ask(&bench, "a", TakeMode::Quiesce).await, (0, true, false));
    assert_eq!(ask(&bench, "b", TakeMode::Rest).await, (0, true, false));
    assert_eq!(ask(&bench, "a", TakeMode::Normal).await, (0, true, true));
}

#[tokio::test]
async fn suspect_is_leased_only_with_the_turn() {
    let bench = Bench::new().await;
    suspect(&bench, "t:poison").await;
    bench.enqueue(due_now("t:1")).await;
    assert_eq!(ask(&bench, "a", TakeMode::Quiesce).await, (0, true, true));
    assert_eq!(ask(&bench, "b", TakeMode::Alone).await, (1, true, false));
    assert_eq!(bench.find("t:1").await.unwrap().state, JobState::Leased, "as in mode rest");
    assert_eq!(ask(&bench, "a", TakeMode::Alone).await, (1, true, true));
    assert_eq!(bench.find("t:poison").await.unwrap().state, JobState::Leased);
    assert_eq!(ask(&bench, "a", TakeMode::Quiesce).await, (0, false, true), "while it runs");
    suspect(&bench, "t:another").await;
    assert_eq!(ask(&bench, "b", TakeMode::Normal).await, (0, true, false));
}

// Fault F16
#[tokio::test]
async fn thousand_suspects_hide_no_normal_job() {
    let bench = Bench::new().await;
    let suspects: Vec<NewJob> = (0..1_000).map(|n| due_now(&format!("t:poison-{n}"))).collect();
    bench.store.enqueue(&suspects).await.unwrap();
    for _ in 0..2 {
        assert_eq!(bench.take(1_000).await.jobs.len(), 1_000);
        bench.advance(LEASE);
    }
    bench.enqueue(due_now("t:1")).await;
    assert_eq!(bench.take(5).await.ids(), ["t:1"]);
    let stats = &bench.store.queue_stats(&[QUEUE]).await.unwrap()[0];
    assert_eq!((stats.due, stats.suspects, stats.leased), (1_000, 1_000, 1));
}

/// A drain hands a suspect back to the due jobs.
#[tokio::test]
async fn due_suspect_is_moved_to_suspects() {
    let bench = Bench::new().await;
    for n in 0..3 {
        bench.enqueue(due_now(&format!("t:{n}"))).await;
    }
    bench.redis::<()>(&["HSET", "{dq:0}:tries", "t:0", "0 2"]).await;
    let took = bench.take(2).await;
    assert_eq!((took.ids(), took.next_due_ms), (vec!["t:1"], Some(START_MS)));
    assert_eq!(bench.find("t:0").await.unwrap().state, JobState::Suspect);
}

#[tokio::test]
async fn next_due_ignores_suspects() {
    let bench = Bench::new().await;
    suspect(&bench, "t:poison").await;
    assert_eq!(bench.take(5).await.next_due_ms, None);
    bench.enqueue(timer("t:1", secs(3))).await;
    assert_eq!(bench.take(5).await.next_due_ms, Some(START_MS + 3_000));
}

#[tokio::test]
async fn suspect_is_operated_like_a_waiting_job() {
    let bench = Bench::new().await;
    suspect(&bench, "t:1").await;
    let stats = &bench.store.queue_stats(&[QUEUE]).await.unwrap()[0];
    assert_eq!((stats.due, stats.scheduled, stats.suspects, stats.oldest_due_ms), (1, 0, 1, Some(0)));
    let listed = bench.store.list_jobs(QUEUE, JobState::Suspect, 0, 10).await.unwrap();
    assert_eq!((listed[0].id.as_str(), listed[0].at_ms, listed[0].lost), ("t:1", START_MS, 2));
    let job = bench.find("t:1").await.unwrap();
    assert_eq!((job.state, job.at_ms, job.lost), (JobState::Suspect, START_MS, 2));

    assert_eq!(bench.enqueue(timer("t:1", secs(1))).await, EnqueueVerdict::Kept);
    assert_eq!(bench.store.repair(&[due_now("t:1")]).await.unwrap(), [RepairVerdict::Fine]);
    let moved = bench.store.reschedule(&id("t:1"), &[QUEUE, OTHER], secs(70)).await.unwrap();
    assert_eq!(moved, RescheduleVerdict::Moved);
    assert_eq!(bench.store.queue_stats(&[QUEUE]).await.unwrap()[0].scheduled, 1);
    assert_eq!(bench.store.repair(&[due_now("t:1")]).await.unwrap(), [RepairVerdict::Moved]);
    assert_eq!(bench.find("t:1").await.unwrap().state, JobState::Suspect);
    assert_eq!(bench.store.cancel(&id("t:1"), &[QUEUE, OTHER]).await.unwrap(), CancelVerdict::Removed);
    assert_eq!(bench.find("t:1").await, None);

    suspect(&bench, "t:2").await;
    let leased = bench.take_of(&[(QUEUE, 5)], TakeMode::Alone).await.jobs.remove(0);
    bench.settle(&leased, LeaseEnd::Dead { error: "it is broken".to_owned() }).await;
    assert_eq!(bench.find("t:2").await.unwrap().state, JobState::Dead);
}

/// Upper bound of the numbers of suspects in [`fleet`].
const SUSPECTS: u64 = 1_000;

/// Observations of the handlers of [`fleet`].
#[derive(Default)]
struct Seen {
    suspects: AtomicUsize,
    normal: AtomicUsize,
    /// Whether a suspect ran at the same time as another job of its process.
    beside: AtomicBool,
    /// Whether suspects wait for `go_on`.
    holds: AtomicBool,
    go_on: Notify,
}

/// Starts processes that run ticks; each counts its concurrent runs.
fn fleet(store: &Store, processes: usize, seen: &Arc<Seen>) -> Vec<Worker> {
    let process = || {
        let (seen, running) = (seen.clone(), Arc::new(AtomicUsize::new(0)));
        let registry = Registry::new().register::<Letter, _, _>(move |letter, _| {
            let (seen, running) = (seen.clone(), running.clone());
            async move {
                let is_suspect = letter.0 < SUSPECTS;
                let others = running.fetch_add(1, Ordering::SeqCst);
                seen.beside.fetch_or(is_suspect && others > 0, Ordering::SeqCst);
                if is_suspect {
                    seen.suspects.fetch_add(1, Ordering::SeqCst);
                    while seen.holds.load(Ordering::SeqCst) {
                        seen.go_on.notified().await;
                    }
                } else {
                    tokio::task::yield_now().await;
                    seen.normal.fetch_add(1, Ordering::SeqCst);
                }
                seen.beside.fetch_or(is_suspect && running.load(Ordering::SeqCst) > 1, Ordering::SeqCst);
                running.fetch_sub(1, Ordering::SeqCst);
                Outcome::done()
            }
        });
        Worker::start(Runtime::new(store.clone(), registry).queues([(OTHER, 8)]))
    };
    (0..processes).map(|_| process()).collect()
}

async fn with_suspects() -> (servers::RedisServer, Store) {
    let redis = servers::RedisServer::start().await.unwrap();
    let store = Store::connect(&redis.url()).await.unwrap();
    rebuild(&store).await;
    let letter = |n| NewJob::now(&Letter(n, "x".to_owned()));
    store.enqueue(&(0..SUSPECTS + 500).map(letter).collect::<Vec<_>>()).await.unwrap();
    let tries = (0..SUSPECTS).flat_map(|n| [format!("letter:{n}"), "0 2".to_owned()]);
    let words: Vec<String> = ["HSET", "{dq:0}:tries"].map(str::to_owned).into_iter().chain(tries).collect();
    raw::<()>(&redis.url(), &words.iter().map(String::as_str).collect::<Vec<_>>()).await;
    (redis, store)
}

// Fault F16
#[tokio::test]
async fn normal_jobs_run_beside_a_slow_suspect() {
    let (_redis, store) = with_suspects().await;
    let seen = Arc::new(Seen { holds: AtomicBool::new(true), ..Seen::default() });
    let workers = fleet(&store, 2, &seen);
    eventually("all normal jobs ran", async || seen.normal.load(Ordering::SeqCst) == 500).await;
    assert!(seen.suspects.load(Ordering::SeqCst) <= 1, "one process at a time");
    eventually("a suspect runs", async || seen.suspects.load(Ordering::SeqCst) == 1).await;
    store.enqueue(&[NewJob::now(&Letter(9_999, "x".to_owned()))]).await.unwrap();
    eventually("and one more", async || seen.normal.load(Ordering::SeqCst) == 501).await;
    seen.holds.store(false, Ordering::SeqCst);
    seen.go_on.notify_one();
    eventually("they go on", async || seen.suspects.load(Ordering::SeqCst) > 10).await;
    assert!(!seen.beside.load(Ordering::SeqCst), "each alone in its process");
    for worker in workers {
        worker.drain().await;
    }
}

// Fault F16
#[tokio::test]
async fn single_process_runs_suspects_and_normal_jobs() {
    let (_redis, store) = with_suspects().await;
    let seen = Arc::new(Seen::default());
    let mut workers = fleet(&store, 1, &seen);
    eventually("all normal jobs ran", async || seen.normal.load(Ordering::SeqCst) == 500).await;
    assert!(seen.suspects.load(Ordering::SeqCst) < 1_000, "they were not behind all suspects");
    // An endless stream of normal jobs, so that the process is never idle.
    let mut number = 10_000;
    let stream = async {
        while seen.suspects.load(Ordering::SeqCst) < 100 {
            let some: Vec<NewJob> = (number..number + 50).map(|n| NewJob::now(&Letter(n, "x".to_owned()))).collect();
            store.enqueue(&some).await.unwrap();
            number += 50;
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(secs(90), stream).await.expect("suspects run beside a stream of normal jobs");
    assert!(!seen.beside.load(Ordering::SeqCst), "each alone in its process");
    workers.remove(0).drain().await;
}

/// Both processes have long runs; one of them keeps taking jobs.
#[tokio::test]
async fn a_suspect_does_not_stall_a_busy_fleet() {
    let redis = servers::RedisServer::start().await.unwrap();
    let store = Store::connect(&redis.url()).await.unwrap();
    rebuild(&store).await;
    let (long, ticks, letters) =
        (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let alone = Arc::new(AtomicBool::new(false));
    let mut workers = Vec::new();
    for _ in 0..2 {
        let (long, letters, counted) = (long.clone(), letters.clone(), ticks.clone());
        let poisoned = alone.clone();
        let registry = Registry::new()
            .register::<Letter, _, _>(move |_, _| {
                let (long, letters) = (long.clone(), letters.clone());
                async move {
                    letters.fetch_add(1, Ordering::SeqCst);
                    long.notified().await;
                    Outcome::done()
                }
            })
            .register::<Tick, _, _>(move |tick, _| {
                if tick.0 == 0 {
                    poisoned.store(true, Ordering::SeqCst);
                }
                counted.fetch_add(1, Ordering::SeqCst);
                async { Outcome::done() }
            });
        let runtime = Runtime::new(store.clone(), registry).queues([(QUEUE, 4), (OTHER, 1)]);
        workers.push(Worker::start(runtime));
    }
    let both: Vec<NewJob> = (0..2).map(|n| NewJob::now(&Letter(n, "x".to_owned()))).collect();
    store.enqueue(&both).await.unwrap();
    eventually("both are busy", async || letters.load(Ordering::SeqCst) == 2).await;
    raw::<()>(&redis.url(), &["HSET", "{dq:0}:tries", "tick:0", "0 2"]).await;
    for n in 0..10 {
        store.enqueue(&[NewJob::now(&Tick(n))]).await.unwrap();
    }
    eventually("the neighbours ran", async || ticks.load(Ordering::SeqCst) == 9).await;
    assert!(!alone.load(Ordering::SeqCst), "it never ran beside another job");
    long.notify_waiters();
    eventually("the suspect ran", async || alone.load(Ordering::SeqCst)).await;
    for worker in workers {
        worker.drain().await;
    }
}
