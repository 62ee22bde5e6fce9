//! Circuit breakers.

use std::time::Duration;

use crate::support::Bench;
use queue::store::BreakerPolicy;

const POLICY: BreakerPolicy =
    BreakerPolicy { failures: 3, open: Duration::from_secs(5), max_open: Duration::from_secs(15) };

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test]
async fn breaker_opens_after_consecutive_failures() {
    let bench = Bench::new().await;
    for _ in 0..2 {
        assert!(!bench.store.breaker_failed("p", &POLICY, "503").await.unwrap().is_open());
    }
    assert_eq!(bench.store.breaker_succeeded("p").await.unwrap().failures, 0);
    for _ in 0..2 {
        assert!(!bench.store.breaker_failed("p", &POLICY, "503").await.unwrap().is_open());
    }
    let open = bench.store.breaker_failed("p", &POLICY, "timed out").await.unwrap();
    assert_eq!((open.open_for, open.why.as_str()), (secs(5), "timed out"));
    // Calls made before the breaker opened change nothing.
    assert_eq!(bench.store.breaker_failed("p", &POLICY, "late").await.unwrap().open_for, secs(5));
    assert_eq!(bench.store.breaker_succeeded("p").await.unwrap().open_for, secs(5));
    assert!(!bench.store.breaker_state("another").await.unwrap().is_disturbed());
}

#[tokio::test]
async fn half_open_breaker_reopens_longer_or_closes() {
    let bench = Bench::new().await;
    for _ in 0..3 {
        bench.store.breaker_failed("p", &POLICY, "down").await.unwrap();
    }
    for longer in [10, 15, 15] {
        bench.advance(secs(15));
        assert!(bench.store.breaker_state("p").await.unwrap().is_half_open());
        assert_eq!(bench.store.breaker_failed("p", &POLICY, "down").await.unwrap().open_for, secs(longer));
    }
    bench.advance(secs(15));
    let closed = bench.store.breaker_succeeded("p").await.unwrap();
    assert!(!closed.is_open() && !closed.is_disturbed());
    bench.advance(secs(2));
    assert_eq!(bench.store.breaker_state("p").await.unwrap().closed_for, Some(secs(2)));
}

// Fault F17
#[tokio::test]
async fn clock_step_back_keeps_breaker_time() {
    let bench = Bench::new().await;
    for _ in 0..3 {
        bench.store.breaker_failed("p", &POLICY, "down").await.unwrap();
    }
    bench.advance(secs(2));
    bench.store.breaker_failed("p", &POLICY, "down").await.unwrap();
    bench.step_back(secs(3_600));
    assert!(bench.store.breaker_state("p").await.unwrap().open_for <= secs(5));
    bench.advance(secs(5));
    assert!(bench.store.breaker_state("p").await.unwrap().is_half_open());
}

#[tokio::test]
async fn pause_does_not_count_as_failure() {
    let bench = Bench::new().await;
    let paused = bench.store.breaker_paused("p", secs(7), "429").await.unwrap();
    assert_eq!((paused.open_for, paused.opens, paused.failures), (secs(7), 0, 0));
    bench.advance(secs(7));
    let over = bench.store.breaker_state("p").await.unwrap();
    assert!(!over.is_open() && !over.is_half_open());
}

#[tokio::test]
async fn tripped_breaker_opens_at_once() {
    let bench = Bench::new().await;
    assert!(bench.store.breaker_tripped("p", &POLICY, "401").await.unwrap().is_open());
}
