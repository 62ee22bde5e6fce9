//! Slots that pass from job to job, and the lines for them.
//!
//! `limits`: numbers of slots. `parked`: data of a waiting job. `stated`: jobs that state their need. `recovery`: after
//! Redis lost the slots.

mod limits;
mod parked;
mod recovery;
mod stated;

use std::ops::ControlFlow;

use crate::support::{Bench, OTHER, QUEUE, START_MS, due_now, id, millis, secs};
use queue::{
    LeasedJob, SlotGrant, SlotNeed,
    store::{EndedSlots, JobState, LeaseEnd, ReleaseVerdict, SlotLimits, SlotVerdict, Store, TakeMode},
};

pub(crate) fn need(group: &str, own: &str) -> SlotNeed {
    SlotNeed::new(group, own, secs(5)).unwrap()
}

async fn set_limits(store: &Store, all: u32, groups: &[(&str, u32)]) {
    let limits = groups
        .iter()
        .fold(SlotLimits::for_shard(all), |limits, (group, most)| limits.with_group(*group, *most).unwrap());
    store.set_slot_limits(&limits).await.unwrap();
}

/// Creates a bench with slots.
pub(crate) async fn bench_with(all: u32, groups: &[(&str, u32)]) -> Bench {
    let bench = Bench::new().await;
    set_limits(&bench.store, all, groups).await;
    bench
}

async fn ask(bench: &Bench, job: &str, need: &SlotNeed) -> SlotVerdict {
    bench.store.acquire_slots(QUEUE, &id(job), need).await.unwrap()
}

pub(crate) async fn acquire(bench: &Bench, job: &str, need: &SlotNeed) -> EndedSlots {
    match ask(bench, job, need).await {
        SlotVerdict::Granted(grant) => ended(job, grant),
        other => panic!("{job}: {other:?}"),
    }
}

fn ended(job: &str, grant: SlotGrant) -> EndedSlots {
    EndedSlots { job: id(job), grant }
}

pub(crate) async fn release(bench: &Bench, slots: EndedSlots) {
    assert_eq!(bench.store.release_slots(&[slots]).await.unwrap(), [ReleaseVerdict::Freed]);
}

/// Runs a job that gets no slots and is parked.
pub(crate) async fn park(bench: &Bench, job: &str, need: &SlotNeed) {
    bench.enqueue(due_now(job)).await;
    let leased = bench.take_one().await;
    assert_eq!(leased.delivery.slots, None);
    assert_eq!(ask(bench, job, need).await, SlotVerdict::Busy);
    bench.settle(&leased, LeaseEnd::Park(need.clone())).await;
}

/// Takes the one job that was handed its slots.
pub(crate) async fn take_handed(bench: &Bench) -> (LeasedJob, EndedSlots) {
    let leased = bench.take_one().await;
    let grant = leased.delivery.slots.clone().expect("it comes with its slots");
    let slots = EndedSlots { job: leased.delivery.id.clone(), grant };
    (leased, slots)
}

#[tokio::test]
async fn slots_are_given_together_or_not_at_all() {
    let bench = bench_with(3, &[("a", 2), ("b", 2)]).await;
    acquire(&bench, "t:1", &need("a", "one")).await;
    let before = bench.snapshot().await;
    assert_eq!(ask(&bench, "t:2", &need("b", "one")).await, SlotVerdict::Busy, "its own name is taken");
    assert_eq!(ask(&bench, "t:1", &need("b", "two")).await, SlotVerdict::Busy, "it holds slots by another run");
    assert_eq!(ask(&bench, "t:2", &need("unknown", "two")).await, SlotVerdict::Busy, "no limit, no slot");
    assert_eq!(bench.snapshot().await, before);
    acquire(&bench, "t:2", &need("a", "two")).await;
    assert_eq!(ask(&bench, "t:3", &need("a", "three")).await, SlotVerdict::Busy, "the group is full");
    let last = acquire(&bench, "t:3", &need("b", "three")).await;
    assert_eq!(ask(&bench, "t:4", &need("b", "four")).await, SlotVerdict::Busy, "the shard is full");
    release(&bench, last.clone()).await;
    assert_eq!(bench.store.release_slots(&[last]).await.unwrap(), [ReleaseVerdict::NotHeld]);
    acquire(&bench, "t:4", &need("b", "four")).await;
}

#[tokio::test]
async fn freed_slots_rotate_over_the_groups() {
    let bench = bench_with(1, &[("a", 1), ("b", 1), ("c", 1)]).await;
    let mut held = acquire(&bench, "t:0", &need("a", "0")).await;
    for (job, group) in [("t:a1", "a"), ("t:a2", "a"), ("t:b1", "b"), ("t:b2", "b"), ("t:c1", "c"), ("t:a3", "a")] {
        park(&bench, job, &need(group, job)).await;
    }
    assert_eq!(ask(&bench, "t:new", &need("c", "new")).await, SlotVerdict::Busy);
    let mut served = Vec::new();
    for _ in 0..6 {
        release(&bench, held).await;
        let (leased, slots) = take_handed(&bench).await;
        served.push(leased.delivery.id.to_string());
        bench.settle(&leased, LeaseEnd::Done).await;
        held = slots;
    }
    assert_eq!(served, ["t:b1", "t:c1", "t:a1", "t:b2", "t:a2", "t:a3"]);
}

#[tokio::test]
async fn job_exchanges_slots_of_an_old_need() {
    let bench = bench_with(2, &[("a", 1), ("b", 1)]).await;
    let held = acquire(&bench, "t:0", &need("a", "0")).await;
    for job in ["t:1", "t:2"] {
        park(&bench, job, &need("a", job)).await;
    }
    release(&bench, held).await;
    // The job's row now names group b.
    let (moved, _) = take_handed(&bench).await;
    let calls = script_calls(&bench).await;
    let in_use = |_: SlotGrant| async {
        let asked = script_calls(&bench).await - calls;
        let stats = bench.store.slot_stats(&["a", "b"]).await.unwrap();
        (asked, stats.in_use, stats.groups[1].in_use)
    };
    let ran = queue::run_with_slots(&bench.store, &moved.delivery, &need("b", "t:1"), in_use).await;
    assert_eq!(
        ran,
        ControlFlow::Continue((1, 2, 1)),
        "one command; its own slots and those that went to the next of group a"
    );
    bench.settle(&moved, LeaseEnd::Done).await;
    bench.store.wait_for_slot_releases().await;

    let _other = acquire(&bench, "t:9", &need("b", "9")).await;
    let (moved, _) = take_handed(&bench).await;
    assert_eq!(moved.delivery.id.as_str(), "t:2");
    let ran = queue::run_with_slots(&bench.store, &moved.delivery, &need("b", "t:2"), in_use).await;
    assert_eq!(ran, ControlFlow::Break(queue::Outcome::Park(need("b", "t:2"))));
    let stats = bench.store.slot_stats(&["a", "b"]).await.unwrap();
    assert_eq!((stats.groups[0].in_use, stats.groups[1].in_use), (0, 1));
}

#[tokio::test]
async fn lapsed_reservation_returns_job_to_the_head() {
    let bench = bench_with(1, &[("a", 1)]).await;
    let held = acquire(&bench, "t:0", &need("a", "0")).await;
    for job in ["t:1", "t:2"] {
        park(&bench, job, &need("a", job)).await;
    }
    release(&bench, held).await;
    assert_eq!(bench.find("t:1").await.unwrap().state, JobState::Due);
    bench.advance(secs(2));
    // The queue has no worker; another queue's take expires the reservation.
    let took = bench.take_of(&[(OTHER, 1)], TakeMode::Normal).await;
    assert_eq!(took.next_due_ms, Some(bench.now_ms() + 2_000), "the next reservation may lapse, too");
    let first = bench.find("t:1").await.unwrap();
    assert_eq!((first.state, first.parked.unwrap().before), (JobState::Parked, 0));
    let (second, slots) = take_handed(&bench).await;
    assert_eq!(second.delivery.id.as_str(), "t:2");
    park(&bench, "t:3", &need("a", "t:3")).await;
    release(&bench, slots).await;
    bench.advance(secs(2));
    bench.take_of(&[(OTHER, 1)], TakeMode::Normal).await;
    assert_eq!(bench.find("t:3").await.unwrap().state, JobState::Due);
    assert_eq!(bench.find("t:1").await.unwrap().parked.unwrap().before, 0, "alone in the line");
    let (_, slots) = take_handed(&bench).await;
    park(&bench, "t:4", &need("a", "t:4")).await;
    release(&bench, slots).await;
    assert_eq!(bench.find("t:1").await.unwrap().state, JobState::Due, "its place, given up once, is its own again");
}

#[tokio::test]
async fn reserved_job_passes_the_backlog() {
    let bench = bench_with(1, &[("a", 1)]).await;
    let held = acquire(&bench, "t:0", &need("a", "0")).await;
    park(&bench, "t:parked", &need("a", "parked")).await;
    for job in ["t:1", "t:2", "t:3"] {
        bench.enqueue(due_now(job)).await;
    }
    bench.advance(secs(60));
    release(&bench, held).await;
    bench.advance(millis(1_999));
    let took = bench.take(2).await;
    assert_eq!(took.ids(), ["t:parked", "t:1"]);
    let parked = &took.jobs[0].delivery;
    assert!(parked.slots.is_some());
    assert_eq!((parked.due_ms, parked.lateness_ms), (START_MS + 60_000, 1_999), "due since it has its slots");
    assert_eq!(bench.take(9).await.ids(), ["t:2", "t:3"]);
}

#[tokio::test]
async fn each_slot_ends_at_its_own_time() {
    let bench = bench_with(2, &[("a", 2)]).await;
    let long = SlotNeed::new("a", "long", secs(60)).unwrap();
    let _long = acquire(&bench, "t:long", &long).await;
    let short = acquire(&bench, "t:short", &need("a", "short")).await;
    for key in ["slot_ends", "slot_holds", "slot_owns", "slots_used", "slot_limits"] {
        let ttl: i64 = bench.redis(&["TTL", &format!("{{dq:0}}:{key}")]).await;
        assert_eq!(ttl, -1, "{key} ends with its members and not as a whole");
    }
    park(&bench, "t:1", &need("a", "one")).await;
    assert_eq!(bench.take(1).await.next_due_ms, Some(START_MS + 5_000), "the first slots end");
    bench.advance(millis(4_999));
    assert!(bench.take(1).await.jobs.is_empty());
    bench.advance(millis(1));
    let (handed, _) = take_handed(&bench).await;
    assert_eq!(handed.delivery.id.as_str(), "t:1");
    assert_eq!(bench.store.release_slots(&[short]).await.unwrap(), [ReleaseVerdict::NotHeld]);
    let holders = bench.store.list_slot_holders(0, 10).await.unwrap();
    let holders: Vec<_> = holders.iter().map(|holder| (holder.id.as_str(), holder.ends_ms - START_MS)).collect();
    assert_eq!(holders, [("t:1", 10_000), ("t:long", 60_000)]);
}

#[tokio::test]
async fn cancelled_job_passes_its_reservation_on() {
    let bench = bench_with(1, &[("a", 1)]).await;
    let held = acquire(&bench, "t:0", &need("a", "0")).await;
    for job in ["t:1", "t:2", "t:3"] {
        park(&bench, job, &need("a", job)).await;
    }
    let cancel = async |job: &str| bench.store.cancel(&id(job), &[OTHER, QUEUE]).await.unwrap();
    assert_eq!(cancel("t:2").await, queue::store::CancelVerdict::Removed);
    release(&bench, held).await;
    assert_eq!(bench.find("t:1").await.unwrap().state, JobState::Due);
    assert_eq!(cancel("t:1").await, queue::store::CancelVerdict::Removed);
    let (handed, slots) = take_handed(&bench).await;
    assert_eq!(handed.delivery.id.as_str(), "t:3");
    bench.settle(&handed, LeaseEnd::Done).await;
    release(&bench, slots).await;
    let stats = bench.store.slot_stats(&["a"]).await.unwrap();
    assert_eq!((stats.in_use, stats.parked, stats.groups[0].in_use, stats.groups[0].waiting), (0, 0, 0, 0));
}

/// Returns the number of script calls so far. Calls inside scripts have other names.
async fn script_calls(bench: &Bench) -> u64 {
    let stats: String = bench.redis(&["INFO", "commandstats"]).await;
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap();
    line.split(',').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn slots_cost_two_commands_per_cycle() {
    let bench = bench_with(1, &[("a", 1)]).await;
    // Loads all scripts.
    let held = acquire(&bench, "t:0", &need("a", "0")).await;
    park(&bench, "t:1", &need("a", "one")).await;
    release(&bench, held).await;
    let (leased, slots) = take_handed(&bench).await;
    bench.settle(&leased, LeaseEnd::Done).await;
    release(&bench, slots).await;

    let begun = script_calls(&bench).await;
    bench.enqueue(due_now("t:2")).await;
    let leased = bench.take_one().await;
    let granted = acquire(&bench, "t:2", &need("a", "two")).await;
    assert_eq!(script_calls(&bench).await - begun, 3, "enqueue, take, acquire");
    // Another job finds no slot.
    park(&bench, "t:3", &need("a", "three")).await;
    let parked = script_calls(&bench).await;
    release(&bench, granted).await;
    bench.settle(&leased, LeaseEnd::Done).await;
    assert_eq!(script_calls(&bench).await - parked, 2, "release, settle; none for the parked one");
    let (leased, slots) = take_handed(&bench).await;
    release(&bench, slots).await;
    bench.settle(&leased, LeaseEnd::Done).await;
    assert_eq!(script_calls(&bench).await - parked, 5, "take, release, settle: its slots came with the take");
}
