//! The whole worker, in real time.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{sync::Notify, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::support::{Letter, OTHER, QUEUE, Tick, due_now, eventually, id, millis, rebuild, secs};
use queue::{
    Delivery, Gate, NewJob, Outcome, Registry, RunSummary, Runtime, RuntimeError, Store,
    store::{JobState, LeaseToken, TakeMode, TakeRequest, WorkerInfo},
};

pub(crate) struct Worker {
    pub(crate) stop: CancellationToken,
    task: JoinHandle<Result<RunSummary, RuntimeError>>,
}

impl Worker {
    pub(crate) fn start(runtime: Runtime) -> Self {
        let stop = CancellationToken::new();
        Self { task: tokio::spawn(runtime.run(stop.clone())), stop }
    }

    pub(crate) async fn drain(self) -> RunSummary {
        self.stop.cancel();
        self.task.await.unwrap().unwrap()
    }
}

async fn redis_and_store() -> (servers::RedisServer, Store) {
    let redis = servers::RedisServer::start().await.unwrap();
    let store = Store::connect(&redis.url()).await.unwrap();
    rebuild(&store).await;
    (redis, store)
}

/// Returns a registry that counts every tick.
pub(crate) fn counting(count: &Arc<AtomicUsize>) -> Registry {
    let count = count.clone();
    Registry::new().register::<Tick, _, _>(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Outcome::done() }
    })
}

fn ticks(numbers: std::ops::Range<u64>) -> Vec<NewJob> {
    numbers.map(|n| NewJob::now(&Tick(n))).collect()
}

#[tokio::test]
async fn every_job_runs_once() {
    let (_redis, store) = redis_and_store().await;
    let count = Arc::new(AtomicUsize::new(0));
    store.enqueue(&ticks(0..5_000)).await.unwrap();
    let worker = Worker::start(Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 64)]));
    eventually("all performed", async || count.load(Ordering::SeqCst) == 5_000).await;
    let summary = worker.drain().await;
    assert_eq!(summary, RunSummary { settled: 5_000, refused: 0, released: 0 });
    assert_eq!(count.load(Ordering::SeqCst), 5_000);
    let stats = store.queue_stats(&[QUEUE]).await.unwrap();
    assert_eq!((stats[0].due, stats[0].leased, stats[0].dead), (0, 0, 0));
}

#[tokio::test]
async fn idle_worker_starts_due_job_at_once() {
    let (_redis, store) = redis_and_store().await;
    let started = Arc::new(Notify::new());
    let notify = started.clone();
    let registry = Registry::new().register::<Tick, _, _>(move |_, _| {
        notify.notify_one();
        async { Outcome::done() }
    });
    let worker = Worker::start(Runtime::new(store.clone(), registry).queues([(QUEUE, 4)]));
    tokio::time::sleep(millis(300)).await;
    let mut waits = Vec::new();
    for n in 0..9 {
        // A time within the second of the idle poll, so that polling alone would be slow.
        tokio::time::sleep(millis(50)).await;
        let begun = Instant::now();
        store.enqueue(&[NewJob::now(&Tick(n))]).await.unwrap();
        started.notified().await;
        waits.push(begun.elapsed());
    }
    worker.drain().await;
    waits.sort();
    assert!(waits[4] < millis(50), "{waits:?}");
}

#[tokio::test]
async fn a_delayed_job_starts_on_time() {
    let (_redis, store) = redis_and_store().await;
    let late = Arc::new(Mutex::new(Vec::new()));
    let seen = late.clone();
    let registry = Registry::new().register::<Tick, _, _>(move |_, delivery: Delivery| {
        seen.lock().unwrap().push(delivery.lateness_ms);
        async { Outcome::done() }
    });
    let worker = Worker::start(Runtime::new(store.clone(), registry).queues([(QUEUE, 4)]));
    // Spread over the second of the idle poll, so that polling alone would be half a second late.
    let timers: Vec<NewJob> = (0..5).map(|n| NewJob::after(&Tick(n), millis(1_700 + 400 * n))).collect();
    store.enqueue(&timers).await.unwrap();
    eventually("started", async || late.lock().unwrap().len() == 5).await;
    let mut late = late.lock().unwrap().clone();
    late.sort_unstable();
    assert!(late[2] < 200, "ms late: {late:?}");
    worker.drain().await;
    assert_eq!(store.read_lateness().await.unwrap().count, 5, "the drain reports what was seen");
}

#[tokio::test]
async fn concurrency_is_a_limit() {
    let (_redis, store) = redis_and_store().await;
    let (running, most, done) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = (running, most.clone(), done.clone());
    let registry = Registry::new().register::<Tick, _, _>(move |_, _| {
        let (running, most, done) = seen.clone();
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(millis(5)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            done.fetch_add(1, Ordering::SeqCst);
            Outcome::done()
        }
    });
    store.enqueue(&ticks(0..60)).await.unwrap();
    let worker = Worker::start(Runtime::new(store, registry).queues([(QUEUE, 3)]));
    eventually("all done", async || done.load(Ordering::SeqCst) == 60).await;
    worker.drain().await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn panic_and_timeout_cost_one_try_each() {
    let (_redis, store) = redis_and_store().await;
    let dead = Arc::new(Mutex::new(HashMap::new()));
    let registry = Registry::new().register::<Tick, _, _>(|tick, _| async move {
        match tick.0 {
            1 => panic!("cannot count to one"),
            2 => std::future::pending().await,
            _ => Outcome::done(),
        }
    });
    let record = dead.clone();
    let runtime = Runtime::new(store.clone(), registry).queues([(QUEUE, 4)]).on_dead(move |id, error| {
        record.lock().unwrap().insert(id.to_string(), error.to_owned());
    });
    store.enqueue(&ticks(0..8)).await.unwrap();
    let worker = Worker::start(runtime);
    eventually("both died", async || dead.lock().unwrap().len() == 2).await;
    worker.drain().await;
    let dead = dead.lock().unwrap().clone();
    assert_eq!(dead["tick:1"], "failed 2 tries; last: panicked: cannot count to one");
    assert_eq!(dead["tick:2"], "failed 2 tries; last: timed out after 200ms");
    assert_eq!(store.queue_stats(&[QUEUE]).await.unwrap()[0].due, 0);
}

#[tokio::test]
async fn unreadable_job_dies_and_unknown_kind_waits() {
    let (redis, store) = redis_and_store().await;
    let count = Arc::new(AtomicUsize::new(0));
    store.enqueue(&[due_now("tick:nonsense"), due_now("novelty:1")]).await.unwrap();
    store.enqueue(&[NewJob::now(&Letter(1, "x".to_owned()))]).await.unwrap();
    crate::support::raw::<()>(&redis.url(), &["HSET", "{dq:0}:jobs", "letter:1", "{"]).await;
    let worker = Worker::start(Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 4), (OTHER, 4)]));
    eventually("all settled", async || {
        let stats = store.queue_stats(&[QUEUE, OTHER]).await.unwrap();
        stats.iter().map(|queue| queue.dead).sum::<u64>() == 2 && stats[0].scheduled == 1
    })
    .await;
    worker.drain().await;
}

#[tokio::test]
async fn drain_waits_for_running_jobs() {
    let (_redis, store) = redis_and_store().await;
    let started = Arc::new(Notify::new());
    let notify = started.clone();
    let registry = Registry::new().register::<Tick, _, _>(move |_, _| {
        notify.notify_one();
        async {
            tokio::time::sleep(millis(150)).await;
            Outcome::done()
        }
    });
    store.enqueue(&ticks(0..1)).await.unwrap();
    let worker = Worker::start(Runtime::new(store.clone(), registry).queues([(QUEUE, 4)]));
    started.notified().await;
    assert_eq!(worker.drain().await, RunSummary { settled: 1, refused: 0, released: 0 });
}

#[tokio::test]
async fn drain_returns_unfinished_jobs_without_spending_tries() {
    let (_redis, store) = redis_and_store().await;
    let started = Arc::new(AtomicUsize::new(0));
    let count = started.clone();
    let registry = Registry::new().register::<Letter, _, _>(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::pending()
    });
    let letters: Vec<NewJob> = (0..3).map(|n| NewJob::now(&Letter(n, "x".to_owned()))).collect();
    store.enqueue(&letters).await.unwrap();
    let runtime = Runtime::new(store.clone(), registry).queues([(OTHER, 4)]).grace(millis(100));
    let worker = Worker::start(runtime);
    eventually("all running", async || started.load(Ordering::SeqCst) == 3).await;
    let begun = Instant::now();
    assert_eq!(worker.drain().await, RunSummary { settled: 0, refused: 0, released: 3 });
    assert!(begun.elapsed() < secs(2), "{:?}", begun.elapsed());
    let jobs = store.list_jobs(OTHER, JobState::Due, 0, 10).await.unwrap();
    assert_eq!(jobs.iter().map(|job| (job.failed, job.lost)).collect::<Vec<_>>(), [(0, 0); 3]);
    assert!(store.list_workers().await.unwrap().is_empty());
}

#[tokio::test]
async fn closed_gate_stops_takes() {
    let (_redis, store) = redis_and_store().await;
    let count = Arc::new(AtomicUsize::new(0));
    let gate = Gate::new_closed();
    store.enqueue(&ticks(0..3)).await.unwrap();
    let runtime = Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 4)]).gate(gate.clone());
    let worker = Worker::start(runtime);
    eventually("it runs", async || !store.list_workers().await.unwrap().is_empty()).await;
    tokio::time::sleep(millis(200)).await;
    assert_eq!(count.load(Ordering::SeqCst), 0);
    gate.set_open(true);
    eventually("all performed", async || count.load(Ordering::SeqCst) == 3).await;
    worker.drain().await;
}

#[tokio::test]
async fn heartbeat_shows_drain_memory_and_processor() {
    let (_redis, store) = redis_and_store().await;
    let gate = Gate::new_open();
    let runtime = Runtime::new(store.clone(), Registry::new()).queues([(QUEUE, 4)]).gate(gate.clone());
    let boot = runtime.boot().to_owned();
    let worker = Worker::start(runtime);
    let seen = async |is_so: fn(&WorkerInfo) -> bool| {
        store.list_workers().await.unwrap().iter().any(|worker| worker.boot == boot && is_so(&worker.info))
    };
    eventually("it runs", async || seen(|info| info.drain_ms.is_none()).await).await;
    gate.drain(7);
    eventually("it follows the drain", async || seen(|info| info.drain_ms == Some(7)).await).await;
    gate.set_open(true);
    eventually("the drain has ended", async || seen(|info| info.drain_ms.is_none()).await).await;
    // The second heartbeat is the first with a processor share.
    let shows_use =
        |info: &WorkerInfo| info.cpu_percent.is_some() && info.resident_bytes.is_some_and(|bytes| bytes > 0);
    eventually("its use is known", async || seen(shows_use).await || cfg!(not(target_os = "linux"))).await;
    worker.drain().await;
}

#[tokio::test]
async fn a_running_job_keeps_its_lease_beyond_the_first() {
    let (_redis, store) = redis_and_store().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let count = runs.clone();
    let registry = Registry::new().register::<Letter, _, _>(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        async {
            tokio::time::sleep(secs(10)).await;
            Outcome::done()
        }
    });
    store.enqueue(&[NewJob::now(&Letter(1, "slow".to_owned()))]).await.unwrap();
    let worker = Worker::start(Runtime::new(store.clone(), registry).queues([(OTHER, 4)]));
    eventually("done", async || store.find_job(&id("letter:1"), &[OTHER]).await.unwrap().is_none()).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(worker.drain().await, RunSummary { settled: 1, refused: 0, released: 0 });
}

#[tokio::test]
async fn suspect_runs_alone_before_the_rest() {
    let (redis, store) = redis_and_store().await;
    store.enqueue(&ticks(0..21)).await.unwrap();
    crate::support::raw::<()>(&redis.url(), &["HSET", "{dq:0}:tries", "tick:20", "0 2"]).await;
    let running = Arc::new(AtomicUsize::new(0));
    let beside = Arc::new(AtomicUsize::new(usize::MAX));
    let seen = (running, beside.clone());
    let registry = Registry::new().register::<Tick, _, _>(move |tick, _| {
        let (running, beside) = seen.clone();
        async move {
            let others = running.fetch_add(1, Ordering::SeqCst);
            if tick.0 == 20 {
                beside.store(others, Ordering::SeqCst);
            }
            tokio::time::sleep(millis(20)).await;
            if tick.0 == 20 {
                beside.fetch_max(running.load(Ordering::SeqCst) - 1, Ordering::SeqCst);
            }
            running.fetch_sub(1, Ordering::SeqCst);
            Outcome::done()
        }
    });
    let worker = Worker::start(Runtime::new(store.clone(), registry).queues([(QUEUE, 4)]));
    eventually("all done", async || store.queue_stats(&[QUEUE]).await.unwrap()[0].due == 0).await;
    assert_eq!(worker.drain().await.settled, 21);
    assert_eq!(beside.load(Ordering::SeqCst), 0, "nothing ran beside the suspect");
}

#[tokio::test]
async fn jobs_of_dead_worker_run_within_ten_seconds() {
    let (_redis, store) = redis_and_store().await;
    store.enqueue(&ticks(0..5)).await.unwrap();
    // A process took the jobs and died.
    let token = LeaseToken::new("dead", 1);
    let queues = [(QUEUE, 5)];
    let request = TakeRequest { queues: &queues, token: &token, lease: secs(8), mode: TakeMode::Normal };
    store.take(&request).await.unwrap();
    let died = Instant::now();
    let count = Arc::new(AtomicUsize::new(0));
    let worker = Worker::start(Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 4)]));
    eventually("run again", async || count.load(Ordering::SeqCst) == 5).await;
    assert!(died.elapsed() < secs(10), "{:?}", died.elapsed());
    worker.drain().await;
}

#[tokio::test]
async fn result_of_lost_lease_is_refused() {
    let (redis, store) = redis_and_store().await;
    let (started, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let seen = (started.clone(), go_on.clone());
    let registry = Registry::new().register::<Letter, _, _>(move |_, _| {
        let (started, go_on) = seen.clone();
        async move {
            started.notify_one();
            go_on.notified().await;
            Outcome::then_enqueue(vec![due_now("tick:1")])
        }
    });
    store.enqueue(&[NewJob::now(&Letter(1, "x".to_owned()))]).await.unwrap();
    let worker = Worker::start(Runtime::new(store.clone(), registry).queues([(OTHER, 4)]));
    started.notified().await;
    crate::support::raw::<()>(&redis.url(), &["HSET", "{dq:0}:leases", "letter:1", "other:1 1 -"]).await;
    go_on.notify_one();
    assert_eq!(worker.drain().await, RunSummary { settled: 0, refused: 1, released: 0 });
    assert_eq!(store.find_job(&id("letter:1"), &[OTHER]).await.unwrap().unwrap().state, JobState::Leased);
    assert!(store.find_job(&id("tick:1"), &[QUEUE]).await.unwrap().is_none());
}

/// With more permits than one take may lease, the next take follows at once, without an idle poll.
#[tokio::test]
async fn concurrency_above_take_limit_keeps_pace() {
    let (_redis, store) = redis_and_store().await;
    let count = Arc::new(AtomicUsize::new(0));
    store.enqueue(&ticks(0..13_000)).await.unwrap();
    let begun = Instant::now();
    let worker = Worker::start(Runtime::new(store.clone(), counting(&count)).queues([(QUEUE, 5_000)]));
    eventually("all performed", async || count.load(Ordering::SeqCst) == 13_000).await;
    // 13 takes with idle polls between them would last 12 s.
    assert!(begun.elapsed() < secs(10), "{:?}", begun.elapsed());
    worker.drain().await;
}

#[tokio::test]
async fn missing_or_repeated_queue_is_refused() {
    let store = Store::connect_lazy("redis://127.0.0.1:1/").unwrap();
    let run = async |queues: Vec<(&'static str, usize)>| {
        Runtime::new(store.clone(), Registry::new()).queues(queues).run(CancellationToken::new()).await
    };
    assert_eq!(run(vec![(QUEUE, 0)]).await, Err(RuntimeError::NoQueues));
    assert_eq!(run(vec![(QUEUE, 1), (QUEUE, 2)]).await, Err(RuntimeError::QueueTwice(QUEUE)));
}

/// Chains of follow-ups, the usual work of the engine.
#[tokio::test]
async fn chains_of_follow_ups_run_to_their_end() {
    let (_redis, store) = redis_and_store().await;
    let registry = Registry::new().register::<Tick, _, _>(|tick, _| async move {
        if tick.0 % 10 == 9 {
            Outcome::done()
        } else {
            Outcome::then_enqueue(vec![NewJob::after(&Tick(tick.0 + 1), Duration::from_millis(3))])
        }
    });
    let starts: Vec<NewJob> = (0..100).map(|n| NewJob::now(&Tick(n * 10))).collect();
    store.enqueue(&starts).await.unwrap();
    let worker = Worker::start(Runtime::new(store.clone(), registry).queues([(QUEUE, 16)]));
    eventually("all at rest", async || {
        let stats = store.queue_stats(&[QUEUE]).await.unwrap();
        stats[0].due + stats[0].scheduled + stats[0].leased == 0
    })
    .await;
    assert_eq!(worker.drain().await.settled, 1_000);
}
