//! Slots that are handed over, and the lines for them.

use workers::{
    LeasedJob, SlotGrant, SlotNeed,
    store::{
        EndedSlots, EnqueueVerdict, JobState, LeaseEnd, OngoingWork, ParkVerdict, ParkedPlace, ReleaseVerdict,
        RepairVerdict, RescheduleVerdict, SlotLimits, SlotVerdict, Store, TakeMode, WaitingJob,
    },
};

use crate::support::{Bench, OTHER, QUEUE, START_MS, due_now, id, millis, rebuild, secs, timer};

pub(crate) fn need(group: &str, own: &str) -> SlotNeed {
    SlotNeed::new(group, own, secs(5)).unwrap()
}

async fn set_limits(store: &Store, all: u32, groups: &[(&str, u32)]) {
    let limits = groups
        .iter()
        .fold(SlotLimits::for_shard(all), |limits, (group, most)| limits.with_group(*group, *most).unwrap());
    store.set_slot_limits(&limits).await.unwrap();
}

/// A bench with slots.
async fn bench_with(all: u32, groups: &[(&str, u32)]) -> Bench {
    let bench = Bench::new().await;
    set_limits(&bench.store, all, groups).await;
    bench
}

async fn ask(bench: &Bench, job: &str, need: &SlotNeed) -> SlotVerdict {
    bench.store.acquire_slots(QUEUE, &id(job), need).await.unwrap()
}

async fn acquire(bench: &Bench, job: &str, need: &SlotNeed) -> EndedSlots {
    match ask(bench, job, need).await {
        SlotVerdict::Granted(grant) => ended(job, grant),
        other => panic!("{job}: {other:?}"),
    }
}

fn ended(job: &str, grant: SlotGrant) -> EndedSlots {
    EndedSlots { job: id(job), grant }
}

async fn release(bench: &Bench, slots: EndedSlots) {
    assert_eq!(bench.store.release_slots(&[slots]).await.unwrap(), [ReleaseVerdict::Freed]);
}

/// Runs a job until it finds no slots.
async fn park(bench: &Bench, job: &str, need: &SlotNeed) {
    bench.enqueue(due_now(job)).await;
    let leased = bench.take_one().await;
    assert_eq!(leased.delivery.slots, None);
    assert_eq!(ask(bench, job, need).await, SlotVerdict::Busy);
    bench.settle(&leased, LeaseEnd::Park(need.clone())).await;
}

/// Takes the one job that was handed its slots.
async fn take_handed(bench: &Bench) -> (LeasedJob, EndedSlots) {
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
async fn a_freed_slot_goes_to_the_groups_in_turn_and_first_in_first_out_within_one() {
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
async fn a_reservation_lapses_to_the_next_and_its_job_goes_back_to_the_head() {
    let bench = bench_with(1, &[("a", 1)]).await;
    let held = acquire(&bench, "t:0", &need("a", "0")).await;
    for job in ["t:1", "t:2"] {
        park(&bench, job, &need("a", job)).await;
    }
    release(&bench, held).await;
    assert_eq!(bench.find("t:1").await.unwrap().state, JobState::Due);
    bench.advance(secs(2));
    // No worker of the queue is there: another one's take lets the reservation lapse.
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
async fn a_slot_ends_at_its_own_time_whatever_other_holders_have() {
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
async fn a_cancelled_job_leaves_the_line_and_its_reservation_goes_on() {
    let bench = bench_with(1, &[("a", 1)]).await;
    let held = acquire(&bench, "t:0", &need("a", "0")).await;
    for job in ["t:1", "t:2", "t:3"] {
        park(&bench, job, &need("a", job)).await;
    }
    let cancel = async |job: &str| bench.store.cancel(&id(job), &[OTHER, QUEUE]).await.unwrap();
    assert_eq!(cancel("t:2").await, workers::store::CancelVerdict::Removed);
    release(&bench, held).await;
    assert_eq!(bench.find("t:1").await.unwrap().state, JobState::Due);
    assert_eq!(cancel("t:1").await, workers::store::CancelVerdict::Removed);
    let (handed, slots) = take_handed(&bench).await;
    assert_eq!(handed.delivery.id.as_str(), "t:3");
    bench.settle(&handed, LeaseEnd::Done).await;
    release(&bench, slots).await;
    let stats = bench.store.slot_stats(&["a"]).await.unwrap();
    assert_eq!((stats.in_use, stats.parked, stats.groups[0].in_use, stats.groups[0].waiting), (0, 0, 0, 0));
}

#[tokio::test]
async fn a_lower_limit_cuts_no_open_slot_and_a_higher_one_hands_out_at_once() {
    let bench = bench_with(3, &[("a", 3)]).await;
    let first = acquire(&bench, "t:0", &need("a", "0")).await;
    let second = acquire(&bench, "t:9", &need("a", "9")).await;
    set_limits(&bench.store, 3, &[("a", 1)]).await;
    for job in ["t:1", "t:2", "t:3"] {
        park(&bench, job, &need("a", job)).await;
    }
    let group = bench.store.slot_stats(&["a"]).await.unwrap().groups.remove(0);
    assert_eq!((group.limit, group.in_use, group.waiting, group.first_waits_ms), (1, 2, 3, Some(0)));
    release(&bench, first).await;
    assert!(bench.take(9).await.jobs.is_empty(), "one slot is still more than enough");
    set_limits(&bench.store, 3, &[("a", 3)]).await;
    assert_eq!(bench.take(9).await.ids(), ["t:1", "t:2"]);
    set_limits(&bench.store, 9, &[]).await;
    assert!(bench.take(9).await.jobs.is_empty());
    release(&bench, second).await;
    assert_eq!(bench.take(9).await.ids(), ["t:3"]);
}

#[tokio::test]
async fn a_job_behind_its_own_name_holds_up_no_other() {
    let bench = bench_with(2, &[("a", 2)]).await;
    let cycle = acquire(&bench, "t:cycle", &need("a", "binding")).await;
    park(&bench, "t:settle", &need("a", "binding")).await;
    let place = bench.find("t:settle").await.unwrap().parked.unwrap();
    let behind_own = Some("binding".to_owned());
    assert_eq!(place, ParkedPlace { group: "a".into(), own: "binding".into(), behind_own, before: 0 });
    let other = acquire(&bench, "t:other", &need("a", "another")).await;
    release(&bench, other).await;
    assert!(bench.take(9).await.jobs.is_empty());
    release(&bench, cycle).await;
    assert_eq!(bench.take(9).await.ids(), ["t:settle"]);
}

#[tokio::test]
async fn all_scripts_know_a_parked_job() {
    let bench = bench_with(1, &[("a", 1)]).await;
    let _held = acquire(&bench, "t:0", &need("a", "0")).await;
    park(&bench, "t:1", &need("a", "one")).await;
    bench.advance(secs(3));
    park(&bench, "t:2", &need("a", "two")).await;
    let before = bench.snapshot().await;
    assert_eq!(bench.enqueue(due_now("t:2")).await, EnqueueVerdict::Kept);
    for wanted in [due_now("t:2"), timer("t:2", secs(90))] {
        assert_eq!(bench.store.preview_repair(std::slice::from_ref(&wanted)).await.unwrap(), [RepairVerdict::Fine]);
        assert_eq!(bench.store.repair(&[wanted]).await.unwrap(), [RepairVerdict::Fine]);
    }
    let moved = bench.store.reschedule(&id("t:2"), &[QUEUE], secs(0)).await.unwrap();
    assert_eq!(moved, RescheduleVerdict::Parked);
    assert_eq!(bench.snapshot().await, before);
    let found = bench.find("t:2").await.unwrap();
    assert_eq!((found.state, found.at_ms, found.failed), (JobState::Parked, START_MS + 3_000, 0));
    let listed = bench.store.list_jobs(QUEUE, JobState::Parked, 0, 9).await.unwrap();
    assert_eq!(listed.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["t:1", "t:2"]);
    let stats = bench.store.queue_stats(&[QUEUE]).await.unwrap().remove(0);
    assert_eq!((stats.parked, stats.due, stats.leased), (2, 0, 0));
}

#[tokio::test]
async fn nothing_is_handed_out_without_the_epoch_nor_by_a_server_that_restarted() {
    let mut bench = bench_with(1, &[("a", 1)]).await;
    let held = acquire(&bench, "t:0", &need("a", "0")).await;
    park(&bench, "t:1", &need("a", "one")).await;
    bench.redis.restart().await.unwrap();
    while bench.store.ping().await.is_err() {}
    assert_eq!(ask(&bench, "t:2", &need("a", "two")).await, SlotVerdict::Closed);
    release(&bench, held).await;
    assert!(bench.take(1).await.jobs.is_empty(), "the server may have lost its last second");
    rebuild(&bench.store).await;
    assert_eq!(bench.take(1).await.ids(), ["t:1"]);

    bench.redis::<()>(&["FLUSHALL"]).await;
    assert_eq!(ask(&bench, "t:2", &need("a", "two")).await, SlotVerdict::Closed);
}

#[tokio::test]
async fn a_rebuild_puts_back_open_work_and_the_lines_before_it_hands_out() {
    let bench = bench_with(1, &[("a", 1), ("b", 1)]).await;
    bench.redis::<()>(&["FLUSHALL"]).await;
    let (run_id, marker) = (bench.store.run_id().await.unwrap(), bench.store.begin_rebuild().await.unwrap());
    set_limits(&bench.store, 1, &[("a", 1), ("b", 1)]).await;
    let work = |job: &str, left| OngoingWork { queue: QUEUE, id: id(job), need: need("a", job), left };
    bench.store.restore_slots(&[work("t:open", secs(3)), work("t:more", secs(1))]).await.unwrap();
    let waiting = |job: &str, group| WaitingJob { job: due_now(job), need: need(group, job) };
    let line = [waiting("t:1", "a"), waiting("t:2", "a"), waiting("t:3", "b")];
    assert_eq!(bench.store.park_jobs(&line).await.unwrap(), [ParkVerdict::Parked; 3]);
    assert_eq!(bench.store.park_jobs(&line[..1]).await.unwrap(), [ParkVerdict::Kept]);
    assert!(bench.store.finish_rebuild(&marker, &run_id).await.unwrap());
    assert!(bench.take(9).await.jobs.is_empty(), "one slot too many is held, by work that goes on");
    bench.advance(secs(1));
    assert!(bench.take(9).await.jobs.is_empty());
    bench.advance(secs(2));
    let mut served = Vec::new();
    for _ in 0..3 {
        let (leased, slots) = take_handed(&bench).await;
        served.push(leased.delivery.id.to_string());
        release(&bench, slots).await;
    }
    assert_eq!(served, ["t:3", "t:1", "t:2"]);
}

#[tokio::test]
async fn f17_slots_of_a_clock_ahead_end() {
    let bench = bench_with(1, &[("a", 1)]).await;
    acquire(&bench, "t:0", &need("a", "0")).await;
    bench.step_back(secs(3_600));
    assert_eq!(ask(&bench, "t:1", &need("a", "1")).await, SlotVerdict::Busy);
    bench.advance(secs(5));
    acquire(&bench, "t:1", &need("a", "1")).await;
}

/// Calls of scripts so far; what scripts call themselves has other names.
async fn script_calls(bench: &Bench) -> u64 {
    let stats: String = bench.redis(&["INFO", "commandstats"]).await;
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap();
    line.split(',').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_cycle_costs_two_commands_more_and_a_parked_job_none() {
    let bench = bench_with(1, &[("a", 1)]).await;
    // All scripts are loaded.
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
    // Meanwhile another job finds no slot.
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
