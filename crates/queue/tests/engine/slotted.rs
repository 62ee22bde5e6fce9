//! Workers that run jobs with slots, in real time.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::Notify;

use crate::{
    registry::delivery,
    runtime::Worker,
    slots::need,
    support::{Letter, OTHER, QUEUE, Tick, eventually, id, millis, outcome_of, rebuild, secs},
};
use queue::{
    NewJob, Outcome, Registry, Runtime, SlotGrant, SlotNeed, Store, run_with_slots,
    store::{JobState, SlotLimits, WaitingJob},
};

async fn start_store(redis: &servers::RedisServer, all: u32) -> Store {
    let store = Store::connect(&redis.url()).await.unwrap();
    rebuild(&store).await;
    let limits = SlotLimits::for_shard(all).with_group("a", 2).unwrap().with_group("b", 2).unwrap();
    store.set_slot_limits(&limits).await.unwrap();
    store
}

#[derive(Default)]
struct Seen {
    open: AtomicUsize,
    most: AtomicUsize,
    /// The same per group.
    open_of: [AtomicUsize; 2],
    most_of: [AtomicUsize; 2],
    done: AtomicUsize,
}

/// Returns handlers for ticks, half of them in each of two groups, each with its own name.
fn slotted(store: &Store, seen: &Arc<Seen>) -> Registry {
    let (store, seen) = (store.clone(), seen.clone());
    Registry::new().register::<Tick, _, _>(move |Tick(number), delivery| {
        let (store, seen) = (store.clone(), seen.clone());
        async move {
            let need = need(if number % 2 == 0 { "a" } else { "b" }, &format!("own{number}"));
            let group = usize::from(number % 2 == 1);
            let work = async |_| {
                let open_of_group = seen.open_of[group].fetch_add(1, Ordering::SeqCst) + 1;
                seen.most_of[group].fetch_max(open_of_group, Ordering::SeqCst);
                seen.most.fetch_max(seen.open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(millis(2)).await;
                seen.open.fetch_sub(1, Ordering::SeqCst);
                seen.open_of[group].fetch_sub(1, Ordering::SeqCst);
                seen.done.fetch_add(1, Ordering::SeqCst);
                Outcome::done()
            };
            outcome_of(run_with_slots(&store, &delivery, &need, work).await)
        }
    })
}

#[tokio::test]
async fn two_processes_share_slots_and_serve_every_job() {
    let redis = servers::RedisServer::start().await.unwrap();
    let seen = Arc::new(Seen::default());
    let mut processes = Vec::new();
    for _ in 0..2 {
        let store = start_store(&redis, 3).await;
        let runtime = Runtime::new(store.clone(), slotted(&store, &seen)).queues([(QUEUE, 16)]);
        processes.push((Worker::start(runtime), store));
    }
    let store = processes[0].1.clone();
    let jobs: Vec<_> = (0..300).map(|number| NewJob::now(&Tick(number))).collect();
    store.enqueue(&jobs).await.unwrap();
    eventually("all are done", async || seen.done.load(Ordering::SeqCst) == 300).await;
    for (worker, _) in processes {
        assert_eq!(worker.drain().await.refused, 0);
    }
    assert_eq!(seen.most.load(Ordering::SeqCst), 3);
    assert!(seen.most_of.iter().all(|most| most.load(Ordering::SeqCst) <= 2), "{:?}", seen.most_of);
    let stats = store.slot_stats(&["a", "b"]).await.unwrap();
    assert_eq!((stats.in_use, stats.parked), (0, 0), "the drain waits for the last slots to be freed");
}

#[tokio::test]
async fn idle_worker_starts_a_job_granted_slots() {
    let redis = servers::RedisServer::start().await.unwrap();
    let store = start_store(&redis, 1).await;
    let seen = Arc::new(Seen::default());
    let queue::store::SlotVerdict::Granted(grant) =
        store.acquire_slots(OTHER, &id("letter:1"), &need("a", "held")).await.unwrap()
    else {
        panic!("busy");
    };
    let worker = Worker::start(Runtime::new(store.clone(), slotted(&store, &seen)).queues([(QUEUE, 4)]));
    store.enqueue(&[NewJob::now(&Tick(1))]).await.unwrap();
    eventually("parked", async || store.queue_stats(&[QUEUE]).await.unwrap()[0].parked == 1).await;
    store.release_slots_soon(queue::store::EndedSlots { job: id("letter:1"), grant });
    eventually("done", async || seen.done.load(Ordering::SeqCst) == 1).await;
    worker.drain().await;
}

#[tokio::test]
async fn unused_slots_are_freed_with_the_result() {
    let redis = servers::RedisServer::start().await.unwrap();
    let store = start_store(&redis, 1).await;
    let wait =
        queue::store::WaitingJob { job: NewJob::now(&Tick(1)), need: SlotNeed::new("a", "own1", secs(600)).unwrap() };
    let registry = Registry::new().register::<Tick, _, _>(|_, delivery| async move {
        assert!(delivery.slots.is_some());
        Outcome::done()
    });
    let worker = Worker::start(Runtime::new(store.clone(), registry).queues([(QUEUE, 4)]));
    store.park_jobs(&[wait]).await.unwrap();
    eventually("performed and freed", async || {
        let stats = store.slot_stats(&["a"]).await.unwrap();
        store.find_job(&id("tick:1"), &[QUEUE]).await.unwrap().is_none() && stats.in_use == 0
    })
    .await;
    worker.drain().await;
}

/// Returns handlers for letters that start with slots and never finish: number 0 runs until it is aborted, number 1
/// panics. With `closed`, they first mark their slots as closed.
fn cut_off(store: &Store, closed: bool, begun: &Arc<Notify>) -> Registry {
    let (store, begun) = (store.clone(), begun.clone());
    Registry::new().register::<Letter, _, _>(move |Letter(number, _), delivery| {
        let (store, begun) = (store.clone(), begun.clone());
        async move {
            let work = async |grant: SlotGrant| {
                if closed {
                    grant.mark_closed();
                }
                assert_eq!(number, 0, "it panics");
                begun.notify_one();
                std::future::pending::<Outcome>().await
            };
            outcome_of(run_with_slots(&store, &delivery, &long_need(number), work).await)
        }
    })
}

fn letter(number: u64) -> NewJob {
    NewJob::now(&Letter(number, "x".to_owned()))
}

/// Returns a need whose slots do not end during the test.
fn long_need(number: u64) -> SlotNeed {
    SlotNeed::new("a", format!("own{number}"), SlotNeed::LONGEST).unwrap()
}

/// Starts both letters: number 0 is delivered with its slots, number 1 asks for them.
async fn start_letters(store: &Store, closed: bool) -> Worker {
    store.park_jobs(&[WaitingJob { job: letter(0), need: long_need(0) }]).await.unwrap();
    store.enqueue(&[letter(1)]).await.unwrap();
    let begun = Arc::new(Notify::new());
    let runtime = Runtime::new(store.clone(), cut_off(store, closed, &begun)).queues([(OTHER, 2)]).grace(millis(1));
    let worker = Worker::start(runtime);
    begun.notified().await;
    worker
}

#[tokio::test]
async fn aborted_work_keeps_slots_until_they_end() {
    let redis = servers::RedisServer::start().await.unwrap();
    let store = start_store(&redis, 2).await;
    let worker = start_letters(&store, false).await;
    eventually("the next try waits for its own slots", async || {
        let found = store.find_job(&id("letter:1"), &[OTHER]).await.unwrap().unwrap();
        found.parked.is_some_and(|place| place.behind_own.as_deref() == Some("own1"))
    })
    .await;
    worker.drain().await;
    let aborted = store.find_job(&id("letter:0"), &[OTHER]).await.unwrap().unwrap();
    assert!(aborted.state == JobState::Due && aborted.slots_end_ms.is_some(), "{aborted:?}");
    assert_eq!(store.slot_stats(&["a"]).await.unwrap().in_use, 2);
}

#[tokio::test]
async fn aborted_idle_work_frees_its_slots() {
    let redis = servers::RedisServer::start().await.unwrap();
    let store = start_store(&redis, 2).await;
    let worker = start_letters(&store, true).await;
    eventually("it has panicked", async || {
        store.find_job(&id("letter:1"), &[OTHER]).await.unwrap().unwrap().failed > 0
    })
    .await;
    worker.drain().await;
    eventually("freed", async || store.slot_stats(&["a"]).await.unwrap().in_use == 0).await;
}

#[tokio::test]
async fn without_redis_a_slotted_job_is_snoozed() {
    let store = Store::connect_lazy("redis://127.0.0.1:1/").unwrap();
    let work = async |_| panic!("must not run");
    let outcome = run_with_slots(&store, &delivery("tick:1", None), &need("a", "own"), work).await;
    assert!(matches!(outcome, ControlFlow::Break(Outcome::Snooze { .. })), "{outcome:?}");
}
