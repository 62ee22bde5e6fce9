//! Data of a parked job: its place, and its handling by every script.

use super::{acquire, bench_with, need, park, release, script_calls};
use crate::support::{QUEUE, START_MS, due_now, id, millis, secs, timer};
use queue::store::{EnqueueVerdict, JobState, LeaseEnd, ParkedPlace, RepairVerdict, RescheduleVerdict};

#[tokio::test]
async fn job_waiting_for_own_name_delays_no_other() {
    let bench = bench_with(2, &[("a", 2)]).await;
    let cycle = acquire(&bench, "t:cycle", &need("a", "binding")).await;
    park(&bench, "t:settle", &need("a", "binding")).await;
    let place = bench.find("t:settle").await.unwrap().parked.unwrap();
    let expected = ParkedPlace {
        group: "a".into(),
        own: "binding".into(),
        since_ms: START_MS,
        behind_own: Some("binding".into()),
        own_held_by: Some("t:cycle".into()),
        before: 0,
        first_before: Vec::new(),
    };
    assert_eq!(place, expected);
    let other = acquire(&bench, "t:other", &need("a", "another")).await;
    release(&bench, other).await;
    assert!(bench.take(9).await.jobs.is_empty());
    release(&bench, cycle).await;
    assert_eq!(bench.take(9).await.ids(), ["t:settle"]);
}

#[tokio::test]
async fn find_job_reports_place_and_slots() {
    let bench = bench_with(1, &[("a", 1)]).await;
    bench.enqueue(due_now("t:0")).await;
    let running = bench.take_one().await;
    let held = acquire(&bench, "t:0", &need("a", "0")).await;
    for number in 1..=12 {
        park(&bench, &format!("t:{number}"), &need("a", &number.to_string())).await;
        bench.advance(millis(100));
    }
    let calls = script_calls(&bench).await;
    let found = bench.find("t:0").await.unwrap();
    assert_eq!((found.state, found.slots_end_ms, found.parked), (JobState::Leased, Some(START_MS + 5_000), None));
    let found = bench.find("t:12").await.unwrap();
    assert!(script_calls(&bench).await - calls <= 3, "one each, and one to load the script");
    let place = found.parked.unwrap();
    assert_eq!((found.slots_end_ms, place.group.as_str(), place.since_ms), (None, "a", START_MS + 1_100));
    assert_eq!((place.before, place.behind_own, place.own_held_by), (11, None, None));
    assert_eq!(place.first_before, (1..=10).map(|number| format!("t:{number}")).collect::<Vec<_>>());
    bench.settle(&running, LeaseEnd::Done).await;
    release(&bench, held).await;
    let handed = bench.find("t:1").await.unwrap();
    assert_eq!((handed.state, handed.slots_end_ms), (JobState::Due, Some(bench.now_ms() + 2_000)));
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
