//! Jobs whose deliveries are lost, perhaps because they kill their worker.

use crate::support::{Bench, LEASE, OTHER, QUEUE, due_now, timer};
use queue::store::{JobState, LeaseEnd, TakeMode};

/// Takes the job and loses its lease, `times` times, alone once it is a suspect.
async fn lose(bench: &Bench, times: u32) {
    for _ in 0..times {
        bench.take_of(&[(QUEUE, 1)], TakeMode::Alone).await;
        bench.advance(LEASE);
    }
    bench.take(0).await;
}

#[tokio::test]
async fn job_dies_after_five_lost_deliveries() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:poison")).await;
    lose(&bench, 4).await;
    assert_eq!(bench.find("t:poison").await.unwrap().lost, 4);
    bench.enqueue(due_now("t:neighbour")).await;
    bench.take_of(&[(QUEUE, 10)], TakeMode::Alone).await;
    bench.advance(LEASE);
    let took = bench.take(10).await;
    assert_eq!(took.dead.len(), 1);
    assert_eq!(took.dead[0].id.as_str(), "t:poison");
    assert_eq!(took.ids(), ["t:neighbour"]);
    assert_eq!(took.jobs[0].delivery.lost, 0);
    let record = bench.find("t:poison").await.unwrap().dead.unwrap();
    assert_eq!(record.error, "lost 5 deliveries: its worker died or lost Redis each time");
    assert_eq!(record.lost, 5);
}

#[tokio::test]
async fn suspect_is_skipped_while_others_are_leased() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:poison")).await;
    lose(&bench, 2).await;
    bench.enqueue(due_now("t:1")).await;
    bench.enqueue(due_now("t:2")).await;
    let took = bench.take(2).await;
    assert_eq!(took.ids(), ["t:1", "t:2"]);
    assert!(took.suspects);
}

#[tokio::test]
async fn one_lost_delivery_makes_no_suspect() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:1")).await;
    lose(&bench, 1).await;
    let took = bench.take(2).await;
    assert_eq!(took.ids(), ["t:1"]);
    assert!(!took.suspects);
}

#[tokio::test]
async fn suspect_is_leased_alone() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:poison")).await;
    lose(&bench, 2).await;
    bench.enqueue(due_now("t:1")).await;
    bench.enqueue(queue::NewJob { queue: OTHER, ..due_now("o:1") }).await;
    let took = bench.take_of(&[(OTHER, 10), (QUEUE, 10)], TakeMode::Alone).await;
    assert_eq!(took.ids(), ["t:poison"]);
    assert_eq!(took.jobs[0].delivery.lost, 2);
}

#[tokio::test]
async fn alone_mode_without_suspect_takes_normal_jobs() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:1")).await;
    bench.enqueue(due_now("t:2")).await;
    let took = bench.take_of(&[(QUEUE, 10)], TakeMode::Alone).await;
    assert_eq!(took.ids(), ["t:1", "t:2"]);
}

#[tokio::test]
async fn settled_suspect_is_normal_again() {
    let bench = Bench::new().await;
    for (id, end) in [("t:1", LeaseEnd::Retry { delay: LEASE }), ("t:2", LeaseEnd::Snooze { delay: LEASE })] {
        bench.enqueue(due_now(id)).await;
        lose(&bench, 3).await;
        let leased = bench.take_of(&[(QUEUE, 10)], TakeMode::Alone).await.jobs.remove(0);
        bench.settle(&leased, end).await;
        bench.advance(LEASE);
        let leased = bench.take_one().await;
        assert_eq!(leased.delivery.lost, 0);
        bench.settle(&leased, LeaseEnd::Done).await;
    }
}

#[tokio::test]
async fn many_suspects_do_not_block_the_queue() {
    let bench = Bench::new().await;
    let poison: Vec<_> = (0..50).map(|n| due_now(&format!("t:poison-{n}"))).collect();
    bench.store.enqueue(&poison).await.unwrap();
    for _ in 0..2 {
        // Expired leases, as of a process that dies with all its jobs.
        bench.take(50).await;
        bench.advance(LEASE);
    }
    bench.enqueue(timer("t:1", LEASE)).await;
    bench.advance(LEASE);
    let took = bench.take(5).await;
    assert_eq!(took.ids(), ["t:1"]);
    assert!(took.suspects);
    assert_eq!(bench.find("t:poison-7").await.unwrap().state, JobState::Suspect);
}
