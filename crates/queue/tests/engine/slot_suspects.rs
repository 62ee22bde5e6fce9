//! Jobs with slots whose deliveries are lost, perhaps because they kill their worker.

use crate::{
    slots::{acquire, bench_with, need, park, release},
    support::{Bench, LEASE, OTHER, QUEUE, due_now, secs},
};
use queue::{
    LeasedJob,
    store::{JobState, LeaseEnd, TakeMode},
};

async fn take_alone(bench: &Bench) -> LeasedJob {
    let mut jobs = bench.take_of(&[(QUEUE, 10)], TakeMode::Alone).await.jobs;
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    jobs.remove(0)
}

/// Parks the job, takes it with its slots and loses the delivery, `times` times.
async fn lose_with_slots(bench: &Bench, times: u32) {
    for lost in 0..times {
        let held = acquire(bench, "t:0", &need("a", "0")).await;
        let asks = take_alone(bench).await;
        bench.settle(&asks, LeaseEnd::Park(need("a", "poison"))).await;
        release(bench, held).await;
        let works = take_alone(bench).await.delivery;
        assert_eq!((works.id.as_str(), works.lost), ("t:poison", lost));
        assert!(works.slots.is_some());
        bench.advance(LEASE);
        bench.take(0).await;
    }
}

#[tokio::test]
async fn parked_job_dies_of_its_lost_deliveries() {
    let bench = bench_with(1, &[("a", 1)]).await;
    bench.enqueue(due_now("t:poison")).await;
    lose_with_slots(&bench, 5).await;
    let found = bench.find("t:poison").await.unwrap();
    assert_eq!((found.state, found.dead.unwrap().lost), (JobState::Dead, 5));
}

#[tokio::test]
async fn suspect_with_slots_runs_alone() {
    let bench = bench_with(1, &[("a", 1)]).await;
    bench.enqueue(due_now("t:poison")).await;
    lose_with_slots(&bench, 2).await;
    let held = acquire(&bench, "t:0", &need("a", "0")).await;
    let asks = take_alone(&bench).await;
    bench.settle(&asks, LeaseEnd::Park(need("a", "poison"))).await;
    park(&bench, "t:1", &need("a", "one")).await;
    release(&bench, held).await;
    let took = bench.take(10).await;
    assert!(took.suspects && took.jobs.is_empty(), "it is not run beside others: {:?}", took.ids());

    // The process with the turn must first finish its jobs.
    bench.advance(secs(5) - secs(1));
    bench.take_of(&[(OTHER, 1)], TakeMode::Normal).await;
    assert_eq!(bench.find("t:poison").await.unwrap().state, JobState::Suspect);
    bench.advance(secs(1));
    bench.take_of(&[(OTHER, 1)], TakeMode::Normal).await;
    let lapsed = bench.find("t:poison").await.unwrap();
    assert_eq!((lapsed.state, lapsed.lost, lapsed.parked.unwrap().before), (JobState::Parked, 2, 0));
    assert_eq!(bench.take(10).await.ids(), ["t:1"]);
}
