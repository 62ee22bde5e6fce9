//! Slots and lines after Redis lost them, restarted, or had a wrong clock.

use super::{acquire, ask, bench_with, need, park, release, set_limits, take_handed};
use crate::support::{QUEUE, due_now, id, rebuild, secs};
use queue::store::{EndedSlots, OngoingWork, ParkVerdict, SlotVerdict, WaitingJob};

#[tokio::test]
async fn slots_need_the_epoch_of_this_server() {
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
async fn rebuild_restores_work_and_lines_before_granting() {
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

/// A restore may report older work under an own name that another job holds now.
#[tokio::test]
async fn own_name_waits_for_both_holders() {
    let bench = bench_with(3, &[("a", 3)]).await;
    let cycle = acquire(&bench, "t:cycle", &need("a", "binding")).await;
    let settle = OngoingWork { queue: QUEUE, id: id("t:settle"), need: need("a", "binding"), left: secs(1) };
    bench.store.restore_slots(&[settle]).await.unwrap();
    park(&bench, "t:next", &need("a", "binding")).await;
    bench.advance(secs(2));
    assert!(bench.take(9).await.jobs.is_empty(), "the other holds the name still");
    release(&bench, cycle).await;
    assert_eq!(bench.take(9).await.ids(), ["t:next"]);
}

// Fault F17
#[tokio::test]
async fn slots_of_a_clock_ahead_end() {
    let bench = bench_with(1, &[("a", 1)]).await;
    acquire(&bench, "t:0", &need("a", "0")).await;
    for ahead in [secs(3_600), secs(1)] {
        bench.step_back(ahead);
        assert_eq!(ask(&bench, "t:1", &need("a", "1")).await, SlotVerdict::Busy);
        let holder = bench.store.list_slot_holders(0, 1).await.unwrap().remove(0);
        assert_eq!(holder.ends_ms, bench.now_ms() + 5_000, "its work may have just begun");
    }
    bench.advance(secs(5));
    acquire(&bench, "t:1", &need("a", "1")).await;
}

// Fault F17
#[tokio::test]
async fn all_slots_from_fast_clock_end() {
    let bench = bench_with(250, &[("a", 250)]).await;
    for number in 0..250 {
        acquire(&bench, &format!("t:{number}"), &need("a", &number.to_string())).await;
    }
    bench.step_back(secs(60));
    for _ in 0..3 {
        assert_eq!(bench.take(1).await.next_due_ms, Some(bench.now_ms() + 5_000));
    }
    let holders = bench.store.list_slot_holders(0, 1_000).await.unwrap();
    assert!(holders.iter().all(|holder| holder.ends_ms == bench.now_ms() + 5_000));
    bench.advance(secs(5));
    for _ in 0..3 {
        bench.take(1).await;
    }
    assert_eq!(bench.store.slot_stats(&["a"]).await.unwrap().in_use, 0);
}

#[tokio::test]
async fn lost_slots_are_detected() {
    let bench = bench_with(2, &[("a", 2)]).await;
    let (asked, other) = (acquire(&bench, "t:1", &need("a", "1")).await, acquire(&bench, "t:2", &need("a", "2")).await);
    park(&bench, "t:3", &need("a", "3")).await;
    release(&bench, other.clone()).await;
    let (_, handed) = take_handed(&bench).await;
    let holds = async |slots: &EndedSlots| bench.store.holds_slots(&slots.job, &slots.grant).await.unwrap();
    assert_eq!([holds(&asked).await, holds(&other).await, holds(&handed).await], [true, false, true]);

    bench.redis::<()>(&["FLUSHALL"]).await;
    assert_eq!([holds(&asked).await, holds(&handed).await], [false; 2]);
    // Restored slots count, but their former holder no longer has them.
    let work = OngoingWork { queue: QUEUE, id: id("t:1"), need: need("a", "1"), left: secs(3) };
    bench.store.restore_slots(&[work]).await.unwrap();
    assert!(!holds(&asked).await);
}
