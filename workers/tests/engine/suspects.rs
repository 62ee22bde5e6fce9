//! Who runs suspects: whoever is idle at once, and in a busy fleet one process at a time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

use tokio::sync::Notify;
use workers::{
    NewJob, Outcome, Registry, Runtime, Store, Token,
    store::{TakeMode, TakeRequest, Taken},
};

use crate::{
    runtime::Worker,
    support::{Bench, LEASE, Letter, OTHER, QUEUE, START_MS, Tick, due_now, eventually, rebuild, secs, timer},
};

/// A take of process `boot`: jobs leased, whether suspects were passed over, and whether it may quiesce for them.
async fn ask(bench: &Bench, boot: &str, mode: TakeMode, permits: usize) -> (usize, bool, bool) {
    let token = Token::new(boot, 1);
    let request = TakeRequest { queues: &[(QUEUE, permits)], token: &token, lease: LEASE, mode };
    let Taken::Jobs { jobs, suspects, quiesce, .. } = bench.store.take(&request).await.unwrap() else {
        panic!("no epoch")
    };
    (jobs.len(), suspects, quiesce)
}

async fn told(bench: &Bench, boot: &str) -> (bool, bool) {
    let (_, suspects, quiesce) = ask(bench, boot, TakeMode::Normal, 5).await;
    (suspects, quiesce)
}

async fn suspect(bench: &Bench) {
    bench.enqueue(due_now("t:poison")).await;
    bench.redis::<()>(&["HSET", "{dq:0}:tries", "t:poison", "0 2"]).await;
}

#[tokio::test]
async fn one_process_of_a_fleet_quiesces_and_another_takes_its_place() {
    let bench = Bench::new().await;
    assert_eq!(told(&bench, "a").await, (false, false));
    suspect(&bench).await;
    assert_eq!(told(&bench, "a").await, (true, true));
    assert_eq!(told(&bench, "b").await, (true, false));
    bench.advance(secs(29));
    assert_eq!(told(&bench, "b").await, (true, false));
    bench.advance(secs(1));
    assert_eq!(told(&bench, "b").await, (true, true));
    assert_eq!(told(&bench, "a").await, (true, false));
}

#[tokio::test]
async fn the_next_due_looks_beyond_suspects() {
    let bench = Bench::new().await;
    suspect(&bench).await;
    assert_eq!(bench.take(5).await.next_due_ms, None);
    bench.enqueue(timer("t:1", secs(3))).await;
    assert_eq!(bench.take(5).await.next_due_ms, Some(START_MS + 3_000));
}

#[tokio::test]
async fn a_process_that_quiesces_keeps_its_turn_and_is_told_when_there_is_no_suspect_left() {
    let bench = Bench::new().await;
    suspect(&bench).await;
    bench.enqueue(due_now("t:1")).await;
    assert_eq!(bench.take(0).await.ids().len(), 0);
    let quiesce = async |boot: &str| ask(&bench, boot, TakeMode::Quiesce, 0).await;
    assert_eq!(quiesce("a").await, (0, true, true));
    bench.advance(secs(20));
    assert_eq!(quiesce("a").await, (0, true, true));
    bench.advance(secs(20));
    assert_eq!(quiesce("b").await, (0, true, false));
    let leased = bench.take_of(&[(QUEUE, 5)], TakeMode::Alone).await;
    assert_eq!(leased.ids(), ["t:poison"]);
    assert_eq!(quiesce("a").await, (0, false, false));
    assert_eq!(ask(&bench, "a", TakeMode::Normal, 5).await, (1, false, false));
}

/// Handlers that run for long in both processes: one of them goes on taking.
#[tokio::test]
async fn a_suspect_does_not_stall_a_busy_fleet() {
    let redis = servers::Redis::start().await.unwrap();
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
    crate::support::raw::<()>(&redis.url(), &["HSET", "{dq:0}:tries", "tick:0", "0 2"]).await;
    for n in 0..10 {
        store.enqueue(&[NewJob::now(&Tick(n))]).await.unwrap();
    }
    eventually("the neighbours ran", async || ticks.load(Ordering::SeqCst) == 9).await;
    assert!(!alone.load(Ordering::SeqCst), "it never ran beside another job");
    let freed = Instant::now();
    long.notify_waiters();
    eventually("the suspect ran", async || alone.load(Ordering::SeqCst)).await;
    assert!(freed.elapsed() < secs(3), "{:?}", freed.elapsed());
    for worker in workers {
        worker.drain().await;
    }
}
