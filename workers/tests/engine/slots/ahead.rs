//! Jobs that are leased ahead of the shard's slot, and begin when work of their process has ended.

use std::{pin::Pin, task::Poll, time::Duration};

use workers::{
    LeaseToken, LeasedJob, SlotNeed, Store, run_with_slots,
    store::{EndedSlots, JobAhead, JobState, SlotLimits, SlotVerdict, TakeAnswer, TakeErrands, TakeMode, TakeRequest},
};

use super::{bench_with, need, release, take_handed};
use crate::support::{Bench, LEASE, QUEUE, due_now, id, millis, rebuild, secs};

/// More than any wait takes.
const LONG: Duration = Duration::from_secs(60);

async fn take_ahead(store: &Store, process: &str, number: u64, ahead: usize) -> Vec<LeasedJob> {
    take_with(store, process, number, ahead, &[]).await.0
}

/// A take of a process in which these wait. Returns what it leased, and which of them have the shard's slot.
async fn take_with(
    store: &Store,
    process: &str,
    number: u64,
    ahead: usize,
    waiting: &[&EndedSlots],
) -> (Vec<LeasedJob>, Vec<String>) {
    let ahead_of = |slots: &&EndedSlots| JobAhead { job: slots.job.clone(), grant: slots.grant.clone() };
    let waiting: Vec<_> = waiting.iter().map(ahead_of).collect();
    let token = LeaseToken::new(process, number);
    let request = TakeRequest { queues: &[(QUEUE, 9)], token: &token, lease: LEASE, mode: TakeMode::Normal };
    let errands = TakeErrands { releases: &[], waiting: &waiting, ahead, finds_expired: false };
    match store.take_beside(&request, &errands).await.unwrap() {
        TakeAnswer::Jobs { jobs, promoted, .. } => (jobs, promoted),
        TakeAnswer::NoEpoch => panic!("no epoch"),
    }
}

fn slots_of(leased: &LeasedJob) -> EndedSlots {
    EndedSlots { job: leased.delivery.id.clone(), grant: leased.delivery.slots.clone().unwrap() }
}

/// Polls once.
async fn poll_once<F: Future>(run: &mut Pin<Box<F>>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(run.as_mut().poll(context))).await
}

async fn begin(store: &Store, slots: &EndedSlots, patience: Duration) -> bool {
    store.wait_for_turn(&slots.job, &slots.grant, patience).await.is_some()
}

/// The shard has one slot, each group two; so many jobs of as many own names wait, in two groups by turns. The first has begun its work.
async fn bench_with_one_at_work(waiting: usize) -> (Bench, EndedSlots) {
    let bench = bench_with(1, &[("a", 2), ("b", 2)]).await;
    for number in 0..=waiting {
        let (job, group) = (format!("t:{number}"), if number % 2 == 0 { "a" } else { "b" });
        bench.enqueue(due_now(&job).with_slots(need(group, &job))).await;
    }
    let first = take_ahead(&bench.store, "one", 1, 0).await;
    assert_eq!(first.len(), 1);
    let first = slots_of(&first[0]);
    assert!(begin(&bench.store, &first, Duration::ZERO).await);
    (bench, first)
}

#[tokio::test]
async fn a_job_ahead_begins_when_work_of_its_process_ends_and_redis_hears_of_it_later() {
    let (bench, first) = bench_with_one_at_work(2).await;
    let ahead = take_ahead(&bench.store, "one", 2, 1).await;
    let [second] = &ahead[..] else { panic!("{ahead:?}") };
    let second = slots_of(second);
    // It counts for its group, and not for the shard.
    let stats = bench.store.slot_stats(&["a", "b"]).await.unwrap();
    assert_eq!((stats.in_use, stats.groups[0].in_use, stats.groups[1].in_use, stats.parked), (1, 1, 1, 1));
    assert!(take_ahead(&bench.store, "other", 1, 0).await.is_empty(), "the shard has no slot free");

    let waiting = tokio::spawn({
        let (store, second) = (bench.store.clone(), second.clone());
        async move { begin(&store, &second, LONG).await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    bench.store.release_slots_soon(first);
    assert!(waiting.await.unwrap());
    bench.store.wait_for_slot_releases().await;
    let stats = bench.store.slot_stats(&["a", "b"]).await.unwrap();
    assert_eq!((stats.in_use, stats.groups[0].in_use, stats.groups[1].in_use, stats.parked), (1, 0, 1, 1));
    // The last of them goes to who is in line.
    release(&bench, second).await;
    assert_eq!(take_handed(&bench).await.0.delivery.id, id("t:2"));
}

#[tokio::test]
async fn jobs_ahead_begin_one_for_each_work_that_ends_those_that_are_ready_first() {
    let (bench, first) = bench_with_one_at_work(2).await;
    let ahead = take_ahead(&bench.store, "one", 2, 2).await;
    let [slow, ready] = &ahead[..] else { panic!("{ahead:?}") };
    let (slow, ready) = (slots_of(slow), slots_of(ready));
    assert!(!begin(&bench.store, &ready, Duration::ZERO).await, "nothing has ended");
    bench.store.release_slots_soon(first);
    assert!(begin(&bench.store, &ready, Duration::ZERO).await);
    assert!(!begin(&bench.store, &slow, Duration::ZERO).await, "one has ended, and one has begun");
    bench.store.release_slots_soon(ready);
    assert!(begin(&bench.store, &slow, Duration::ZERO).await);
    bench.store.release_slots_soon(slow);
    bench.store.wait_for_slot_releases().await;
    assert_eq!(bench.store.slot_stats(&["a"]).await.unwrap().in_use, 0);
}

#[tokio::test]
async fn a_job_ahead_that_gives_up_passes_nothing_on_and_frees_what_it_has() {
    let (bench, first) = bench_with_one_at_work(2).await;
    let ahead = take_ahead(&bench.store, "one", 2, 2).await;
    let (gives_up, stays) = (slots_of(&ahead[0]), slots_of(&ahead[1]));
    bench.store.release_slots_soon(gives_up);
    bench.store.wait_for_slot_releases().await;
    assert!(!begin(&bench.store, &stays, Duration::ZERO).await);
    let stats = bench.store.slot_stats(&["a", "b"]).await.unwrap();
    assert_eq!((stats.in_use, stats.groups[0].in_use, stats.groups[1].in_use), (1, 2, 0));
    // One that was told to begin, and did not, hands its turn to the next.
    bench.store.release_slots_soon(first);
    bench.store.release_slots_soon(stays);
    bench.store.wait_for_slot_releases().await;
    assert_eq!(bench.store.slot_stats(&["a"]).await.unwrap().in_use, 0);
}

#[tokio::test]
async fn a_slot_that_came_free_elsewhere_goes_to_the_jobs_ahead_of_the_process_that_asks() {
    let (bench, first) = bench_with_one_at_work(2).await;
    let second = slots_of(&take_ahead(&bench.store, "one", 2, 1).await[0]);
    // As another process would free it: this one passes nothing on.
    bench.store.release_slots(&[first]).await.unwrap();
    let took = bench.find("t:2").await.unwrap();
    assert_eq!(took.state, JobState::Due, "a free slot goes to the line first");
    bench.store.set_slot_limits(&SlotLimits::for_shard(2)).await.unwrap();
    assert!(!begin(&bench.store, &second, Duration::ZERO).await);
    take_ahead(&bench.store, "other", 1, 0).await;
    assert!(!begin(&bench.store, &second, Duration::ZERO).await, "that process names none that waits");
    assert_eq!(take_with(&bench.store, "one", 3, 0, &[&second]).await.1, ["t:1"]);
    // Had the answer been lost: it is told again, and counts once.
    assert_eq!(take_with(&bench.store, "one", 4, 0, &[&second]).await.1, ["t:1"]);
    assert!(begin(&bench.store, &second, Duration::ZERO).await);
    assert_eq!(bench.store.slot_stats(&["a"]).await.unwrap().in_use, 2);
}

#[tokio::test]
async fn slots_of_a_job_ahead_end_by_their_time_and_nothing_is_passed_on_to_it() {
    let (bench, first) = bench_with_one_at_work(1).await;
    std::mem::forget(slots_of(&take_ahead(&bench.store, "one", 2, 1).await[0]));
    bench.advance(secs(5));
    assert!(take_ahead(&bench.store, "other", 1, 0).await.is_empty());
    let stats = bench.store.slot_stats(&["a", "b"]).await.unwrap();
    assert_eq!((stats.in_use, stats.groups[1].in_use), (0, 0));
    assert_eq!(bench.redis::<u64>(&["EXISTS", "{dq:0}:slot_ahead"]).await, 0);
    drop(first);
}

#[tokio::test]
async fn a_lower_limit_lets_nothing_be_leased_ahead() {
    let (bench, _first) = bench_with_one_at_work(1).await;
    bench.store.set_slot_limits(&SlotLimits::for_shard(0)).await.unwrap();
    assert!(take_ahead(&bench.store, "one", 2, 2).await.is_empty());
    assert_eq!(bench.find("t:1").await.unwrap().state, JobState::Parked);
}

#[tokio::test]
async fn work_whose_slots_are_almost_over_passes_nothing_on() {
    let bench = bench_with(1, &[("a", 2), ("b", 2)]).await;
    let short = SlotNeed::new("a", "short", millis(500)).unwrap();
    bench.enqueue(due_now("t:0").with_slots(short)).await;
    bench.enqueue(due_now("t:1").with_slots(need("b", "1"))).await;
    let took = take_ahead(&bench.store, "one", 1, 0).await;
    let ahead = take_ahead(&bench.store, "one", 2, 1).await;
    let (short, long) = (slots_of(&took[0]), slots_of(&ahead[0]));
    assert!(begin(&bench.store, &short, Duration::ZERO).await);
    bench.store.release_slots_soon(short);
    assert!(
        !begin(&bench.store, &long, Duration::ZERO).await,
        "Redis counts that slot for half a second, and this work lasts longer"
    );
    bench.store.wait_for_slot_releases().await;
    take_with(&bench.store, "one", 3, 0, &[&long]).await;
    assert!(begin(&bench.store, &long, Duration::ZERO).await, "by Redis' word it may");
}

#[tokio::test]
async fn a_job_ahead_that_is_aborted_before_its_turn_frees_what_it_has() {
    let (bench, first) = bench_with_one_at_work(1).await;
    let leased = take_ahead(&bench.store, "one", 2, 1).await.remove(0).delivery;
    let need = need("b", "t:1");
    let mut run = Box::pin(run_with_slots(&bench.store, &leased, &need, async |_| panic!("it is not its turn")));
    assert!(poll_once(&mut run).await.is_pending());
    drop(run);
    bench.store.wait_for_slot_releases().await;
    let stats = bench.store.slot_stats(&["a", "b"]).await.unwrap();
    assert_eq!((stats.in_use, stats.groups[0].in_use, stats.groups[1].in_use), (1, 1, 0));
    drop(first);
}

#[tokio::test]
async fn a_job_ahead_that_exchanges_its_slots_gets_no_turn_and_passes_none_on() {
    let (bench, first) = bench_with_one_at_work(2).await;
    let ahead = take_ahead(&bench.store, "one", 2, 2).await;
    let (moves, stays) = (slots_of(&ahead[0]), slots_of(&ahead[1]));
    let asked = bench.store.exchange_slots(QUEUE, &moves.job, &moves.grant, &need("a", "t:1")).await.unwrap();
    assert_eq!(asked, SlotVerdict::Busy);
    assert!(!begin(&bench.store, &moves, Duration::ZERO).await);
    bench.store.release_slots_soon(moves);
    assert!(!begin(&bench.store, &stays, Duration::ZERO).await);
    bench.store.release_slots_soon(first);
    assert!(begin(&bench.store, &stays, Duration::ZERO).await);
    bench.store.wait_for_slot_releases().await;
    assert_eq!(bench.store.slot_stats(&["a"]).await.unwrap().in_use, 1);
}

#[tokio::test]
async fn work_that_may_have_lost_its_slots_passes_none_on() {
    let (bench, first) = bench_with_one_at_work(1).await;
    let second = slots_of(&take_ahead(&bench.store, "one", 2, 1).await[0]);
    bench.store.forfeit_turn(&first.job, &first.grant);
    bench.store.release_slots_soon(first);
    assert!(!begin(&bench.store, &second, Duration::ZERO).await);
}

#[tokio::test]
async fn a_refused_group_keeps_its_turn() {
    let (bench, _first) = bench_with_one_at_work(2).await;
    let ring: Vec<String> = bench.redis(&["ZRANGE", "{dq:0}:slot_ring", "0", "-1", "WITHSCORES"]).await;
    assert_eq!(ring.len(), 4, "both groups have a job in line and a slot free");
    bench.store.pause_queue(QUEUE).await.unwrap();
    assert!(take_ahead(&bench.store, "one", 2, 2).await.is_empty());
    assert_eq!(bench.redis::<Vec<String>>(&["ZRANGE", "{dq:0}:slot_ring", "0", "-1", "WITHSCORES"]).await, ring);
}

#[tokio::test]
async fn nothing_is_promoted_on_a_server_that_restarted() {
    let (bench, first) = bench_with_one_at_work(1).await;
    let second = slots_of(&take_ahead(&bench.store, "one", 2, 1).await[0]);
    bench.store.release_slots(&[first]).await.unwrap();
    bench.redis::<()>(&["SET", "{dq:0}:epoch", "other epoch"]).await;
    take_with(&bench.store, "one", 3, 0, &[&second]).await;
    assert!(!begin(&bench.store, &second, Duration::ZERO).await);
    rebuild(&bench.store).await;
    take_with(&bench.store, "one", 4, 0, &[&second]).await;
    assert!(begin(&bench.store, &second, Duration::ZERO).await);
}
