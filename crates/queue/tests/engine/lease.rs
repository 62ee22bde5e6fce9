//! Expiry, renewal and release of leases.

use crate::support::{Bench, LEASE, QUEUE, START_MS, due_now, millis, secs, timer};
use queue::{
    NewJob,
    store::{EnqueueVerdict, HeldLease, JobState, LeaseEnd, LeaseVerdict, SettleVerdict},
};

fn held(leased: &queue::LeasedJob) -> HeldLease {
    HeldLease { queue: leased.delivery.queue, id: leased.delivery.id.clone(), token: leased.token.clone() }
}

#[tokio::test]
async fn expired_lease_runs_again_with_original_due() {
    let bench = Bench::new().await;
    bench.enqueue(timer("t:1", secs(1))).await;
    bench.advance(secs(1));
    bench.take_one().await;
    bench.advance(LEASE - millis(1));
    assert!(bench.take(10).await.jobs.is_empty());
    bench.advance(millis(1));
    let again = bench.take_one().await.delivery;
    assert_eq!((again.due_ms, again.lateness_ms, again.lost, again.failed), (START_MS + 1_000, 8_000, 1, 0));
}

#[tokio::test]
async fn a_take_without_permits_still_rescues() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:1")).await;
    bench.take_one().await;
    bench.advance(LEASE);
    bench.take(0).await;
    assert_eq!(bench.find("t:1").await.unwrap().state, JobState::Due);
}

#[tokio::test]
async fn one_take_rescues_at_most_a_thousand() {
    let bench = Bench::new().await;
    let jobs: Vec<_> = (0..2_500).map(|n| due_now(&format!("t:{n}"))).collect();
    bench.store.enqueue(&jobs).await.unwrap();
    for _ in 0..3 {
        bench.take(1_000).await;
    }
    bench.advance(LEASE);
    for leased in [1_500, 500, 0] {
        assert_eq!(bench.take(0).await.more_expired, leased > 0);
        assert_eq!(bench.store.queue_stats(&["timers"]).await.unwrap()[0].leased, leased);
    }
}

#[tokio::test]
async fn a_renewed_lease_lasts_longer() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:1")).await;
    let leased = bench.take_one().await;
    bench.advance(secs(6));
    assert_eq!(bench.store.extend(&[held(&leased)], LEASE).await.unwrap(), [LeaseVerdict::Yes]);
    bench.advance(secs(6));
    assert!(bench.take(10).await.jobs.is_empty());
    bench.settle(&leased, LeaseEnd::Done).await;
    assert!(bench.find("t:1").await.is_none());
}

#[tokio::test]
async fn late_settle_of_lost_lease_is_refused() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:1")).await;
    let stale = bench.take_one().await;
    bench.advance(LEASE);
    let fresh = bench.take_one().await;
    assert_eq!(fresh.delivery.id, stale.delivery.id);
    let before = bench.snapshot().await;
    let ends = [
        LeaseEnd::Done,
        LeaseEnd::Snooze { delay: secs(1) },
        LeaseEnd::Retry { delay: secs(1) },
        LeaseEnd::Spent { error: "x".to_owned() },
        LeaseEnd::Dead { error: "x".to_owned() },
    ];
    for end in ends {
        assert_eq!(bench.settle_then(&stale, end, vec![due_now("t:follow")]).await, SettleVerdict::Refused);
    }
    assert_eq!(bench.store.extend(&[held(&stale)], LEASE).await.unwrap(), [LeaseVerdict::Lost]);
    assert_eq!(bench.store.release(&[held(&stale)]).await.unwrap(), [LeaseVerdict::Lost]);
    assert_eq!(bench.snapshot().await, before);
    assert_ne!(bench.settle(&fresh, LeaseEnd::Done).await, SettleVerdict::Refused);
    assert_eq!(bench.settle(&fresh, LeaseEnd::Done).await, SettleVerdict::Refused, "a lease ends once");
}

#[tokio::test]
async fn release_keeps_tries_and_due() {
    let bench = Bench::new().await;
    bench.enqueue(timer("t:1", secs(1))).await;
    bench.advance(secs(3));
    let leased = bench.take_one().await;
    assert_eq!(bench.store.release(&[held(&leased)]).await.unwrap(), [LeaseVerdict::Yes]);
    let again = bench.take_one().await.delivery;
    assert_eq!((again.due_ms, again.failed, again.lost), (START_MS + 1_000, 0, 0));
}

#[tokio::test]
async fn rescue_and_release_keep_the_earlier_due() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:1")).await;
    let leased = bench.take_one().await;
    assert_eq!(bench.enqueue(timer("t:1", secs(5))).await, EnqueueVerdict::Again);
    bench.store.release(&[held(&leased)]).await.unwrap();
    assert_eq!(bench.find("t:1").await.unwrap().at_ms, START_MS, "the original due is the earlier one");
}

// Fault F15
/// A host with many processes may leave 10,000 leases.
#[tokio::test]
async fn ten_thousand_leases_return_in_eleven_calls() {
    let bench = Bench::new().await;
    let jobs: Vec<NewJob> = (0..10_000).map(|n| due_now(&format!("t:{n}"))).collect();
    bench.store.enqueue(&jobs).await.unwrap();
    for _ in 0..10 {
        assert_eq!(bench.take(1_000).await.jobs.len(), 1_000);
    }
    bench.advance(LEASE);
    let mut calls = 1;
    while bench.take(0).await.more_expired {
        calls += 1;
    }
    assert_eq!(calls, 11);
    let stats = &bench.store.queue_stats(&[QUEUE]).await.unwrap()[0];
    assert_eq!((stats.due, stats.leased, stats.oldest_due_ms), (10_000, 0, Some(8_000)));
}

// Fault F17
#[tokio::test]
async fn leases_from_fast_clock_last_one_lease() {
    let bench = Bench::new().await;
    for n in 0..3 {
        bench.enqueue(due_now(&format!("t:{n}"))).await;
    }
    let leased = bench.take(3).await.jobs;
    bench.step_back(secs(3_600));
    assert_eq!(bench.take(5).await.ids().len(), 0, "their workers may live");
    let alive = &leased[0];
    bench.advance(LEASE - millis(1));
    assert_eq!(bench.store.extend(&[held(alive)], LEASE).await.unwrap(), [LeaseVerdict::Yes]);
    bench.advance(millis(1));
    assert_eq!(bench.take(5).await.ids(), ["t:1", "t:2"], "due at once, not when that clock would have said so");
    assert_eq!(bench.settle(alive, LeaseEnd::Done).await, SettleVerdict::Settled { dead_follow_ups: Vec::new() });
}

// Fault F17
#[tokio::test]
async fn plausible_lease_is_left_unchanged() {
    let bench = Bench::new().await;
    bench.enqueue(due_now("t:1")).await;
    bench.take_one().await;
    bench.step_back(LEASE);
    let before = bench.find("t:1").await;
    bench.take(5).await;
    assert_eq!(bench.find("t:1").await, before);
}
