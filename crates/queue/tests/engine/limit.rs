//! Limits shared by the fleet.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    runtime::Worker,
    support::{Bench, LEASE, Letter, OTHER, eventually, millis, rebuild, secs},
};
use queue::{
    Limit, NewJob, Outcome, Registry, Runtime, Store, run_limited,
    store::{AcquireVerdict, Permit},
};

async fn acquire(bench: &Bench, limits: &[Limit]) -> Result<Permit, Duration> {
    match bench.store.acquire(limits).await.unwrap() {
        AcquireVerdict::Permit(permit) => Ok(permit),
        AcquireVerdict::Busy { retry_after } => Err(retry_after),
    }
}

#[tokio::test]
async fn slot_is_free_after_release() {
    let bench = Bench::new().await;
    let limits = [Limit::slots("partner:acme", 2)];
    let first = acquire(&bench, &limits).await.unwrap();
    let _second = acquire(&bench, &limits).await.unwrap();
    assert_eq!(acquire(&bench, &limits).await.unwrap_err(), millis(500));
    bench.store.give_back_slots(first).await.unwrap();
    assert!(acquire(&bench, &limits).await.is_ok());
}

#[tokio::test]
async fn limits_are_taken_together_or_not_at_all() {
    let bench = Bench::new().await;
    let all = Limit::slots("acme", 50);
    let pace = Limit::rate("acme", 1_000, secs(1)).with_burst(50);
    let server = |n: u32| Limit::slots(format!("acme:server{n}"), 2);
    let one = [all.clone(), pace.clone(), server(1)];
    let _held = [acquire(&bench, &one).await.unwrap(), acquire(&bench, &one).await.unwrap()];
    let before = bench.snapshot().await;
    assert!(acquire(&bench, &one).await.is_err());
    assert_eq!(bench.snapshot().await, before, "no place was taken, nothing of the rate spent");
    assert!(acquire(&bench, &[all, pace, server(2)]).await.is_ok());
}

// Fault F17
#[tokio::test]
async fn dead_holder_slot_from_fast_clock_ends() {
    let bench = Bench::new().await;
    let limits = [Limit::slots("acme", 1)];
    let _dead = acquire(&bench, &limits).await.unwrap();
    bench.step_back(secs(3_600));
    assert!(acquire(&bench, &limits).await.is_ok());
}

#[tokio::test]
async fn slot_of_dead_holder_expires() {
    let bench = Bench::new().await;
    let limits = [Limit::slots("acme", 1)];
    let dead = acquire(&bench, &limits).await.unwrap();
    bench.advance(LEASE - millis(100));
    assert_eq!(acquire(&bench, &limits).await.unwrap_err(), millis(100));
    bench.advance(millis(100));
    let fresh = acquire(&bench, &limits).await.unwrap();
    // The expired holder was only slow: its end does not free another holder's slot.
    bench.store.give_back_slots(dead).await.unwrap();
    assert!(acquire(&bench, &limits).await.is_err());
    bench.store.give_back_slots(fresh).await.unwrap();
    assert_eq!(bench.snapshot().await.lines().count(), 1, "the epoch");
}

#[tokio::test]
async fn kept_slot_lasts_and_lost_slot_is_restored() {
    let bench = Bench::new().await;
    let limits = [Limit::slots("acme", 1)];
    let permit = acquire(&bench, &limits).await.unwrap();
    for _ in 0..3 {
        bench.advance(LEASE - millis(1));
        bench.store.keep_slots(&permit).await.unwrap();
        assert!(acquire(&bench, &limits).await.is_err());
    }
    bench.redis::<()>(&["DEL", "{dq:0}:slots:acme"]).await;
    bench.store.keep_slots(&permit).await.unwrap();
    assert!(acquire(&bench, &limits).await.is_err());
}

#[tokio::test]
async fn rate_allows_a_burst_after_a_pause() {
    let bench = Bench::new().await;
    let limits = [Limit::rate("acme", 10, secs(1)).with_burst(3)];
    let pass = async || acquire(&bench, &limits).await.map(|permit| assert!(permit.holds_nothing()));
    for _ in 0..2 {
        assert_eq!([pass().await, pass().await, pass().await], [Ok(()); 3]);
        assert_eq!(pass().await, Err(millis(100)));
        bench.advance(millis(99));
        assert_eq!(pass().await, Err(millis(1)));
        bench.advance(millis(1));
        assert_eq!([pass().await, pass().await], [Ok(()), Err(millis(100))]);
        bench.advance(secs(60));
    }
}

#[tokio::test]
async fn rate_holds_over_a_minute() {
    let bench = Bench::new().await;
    let limits = [Limit::rate("acme", 7, secs(3)).with_burst(2)];
    let mut passed = 0;
    for _ in 0..600 {
        passed += usize::from(acquire(&bench, &limits).await.is_ok());
        bench.advance(millis(100));
    }
    assert!((140..=141).contains(&passed), "{passed}");
}

#[tokio::test]
async fn limits_expire_by_themselves() {
    let bench = Bench::new().await;
    let limits = [Limit::slots("acme", 1), Limit::rate("acme", 1, secs(2))];
    acquire(&bench, &limits).await.map(drop).unwrap();
    for (key, at_most) in [("{dq:0}:slots:acme", 8_000), ("{dq:0}:rate:acme", 12_000)] {
        let ttl: i64 = bench.redis(&["PTTL", key]).await;
        assert!(0 < ttl && ttl <= at_most, "{key}: {ttl}");
    }
}

#[tokio::test]
async fn job_over_its_limit_is_snoozed() {
    let bench = Bench::new().await;
    let limits = [Limit::slots("acme", 1)];
    let inner = async || run_limited(&bench.store, &limits, || async { panic!("must not run") }).await;
    let outer = run_limited(&bench.store, &limits, || async {
        let Outcome::Snooze { delay } = inner().await else { panic!("not snoozed") };
        assert!((millis(500)..=millis(650)).contains(&delay), "{delay:?}");
        Outcome::Dead("its own".to_owned())
    });
    assert_eq!(outer.await, Outcome::Dead("its own".to_owned()));
    assert!(acquire(&bench, &limits).await.is_ok());
}

#[tokio::test]
async fn slots_of_ended_work_are_returned() {
    let bench = Bench::new().await;
    let limits = [Limit::slots("acme", 1), Limit::rate("acme", 1_000, secs(1)).with_burst(100)];
    let done = Outcome::Dead("done".to_owned());
    for _ in 0..5 {
        assert_eq!(run_limited(&bench.store, &limits, || async { done.clone() }).await, done, "the slot is free");
    }
    // Slots under other limits do not take them along.
    assert!(acquire(&bench, &[Limit::slots("other", 1)]).await.is_ok());
    eventually("the last has gone back", async || bench.redis::<i64>(&["EXISTS", "{dq:0}:slots:acme"]).await == 0)
        .await;
}

#[tokio::test]
async fn aborted_work_returns_its_slots() {
    let bench = Bench::new().await;
    let limits = [Limit::slots("acme", 1)];
    let work = run_limited(&bench.store, &limits, std::future::pending);
    assert!(tokio::time::timeout(millis(100), work).await.is_err());
    eventually("given back", async || acquire(&bench, &limits).await.is_ok()).await;
}

#[tokio::test]
async fn limited_job_is_snoozed_without_redis() {
    let store = Store::connect_lazy("redis://127.0.0.1:1/").unwrap();
    let outcome = run_limited(&store, &[Limit::slots("acme", 1)], || async { panic!("must not run") }).await;
    assert!(matches!(outcome, Outcome::Snooze { .. }), "{outcome:?}");
}

/// Two processes, more permits than slots, and work that runs longer than a slot lasts.
#[tokio::test]
async fn limit_holds_across_two_processes() {
    let redis = servers::RedisServer::start().await.unwrap();
    let (running, most, done) = <(Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let long = Arc::new(Notify::new());
    let mut processes = Vec::new();
    for _ in 0..2 {
        let store = Store::connect(&redis.url()).await.unwrap();
        let seen = (store.clone(), running.clone(), most.clone(), done.clone(), long.clone());
        let registry = Registry::new().register::<Letter, _, _>(move |letter, _| {
            let (store, running, most, done, long) = seen.clone();
            async move {
                let work = async || {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    if letter.0 == 0 {
                        long.notified().await;
                    } else {
                        tokio::time::sleep(millis(2)).await;
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                    done.fetch_add(1, Ordering::SeqCst);
                    Outcome::done()
                };
                run_limited(&store, &[Limit::slots("acme", 2)], work).await
            }
        });
        rebuild(&store).await;
        processes.push((Worker::start(Runtime::new(store.clone(), registry).queues([(OTHER, 8)])), store));
    }
    let store = processes[0].1.clone();
    let letters =
        |numbers: std::ops::Range<u64>| numbers.map(|n| NewJob::now(&Letter(n, "x".to_owned()))).collect::<Vec<_>>();
    store.enqueue(&letters(0..1)).await.unwrap();
    eventually("the long one runs", async || running.load(Ordering::SeqCst) == 1).await;
    tokio::time::sleep(secs(9)).await;
    store.enqueue(&letters(1..8)).await.unwrap();
    eventually("the others are done", async || done.load(Ordering::SeqCst) == 7).await;
    assert_eq!(running.load(Ordering::SeqCst), 1, "the long one still runs and holds its slot");
    long.notify_one();
    eventually("all are done", async || done.load(Ordering::SeqCst) == 8).await;
    for (worker, _) in processes {
        assert_eq!(worker.drain().await.refused, 0);
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
}
