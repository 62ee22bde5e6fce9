//! What becomes of 100,000 timers due at one instant: after an outage, or when a promotion ends.
//!
//! The worker is there before, idle. None may be lost, none may run twice; the rate counts from the instant until the
//! last result is written.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use anyhow::ensure;

use super::{
    Rounds, child::WorkerChild, runs::now_us, stage::QueueStage, throughput::micros_to_duration, timers::bench_timers,
};
use queue::ScriptClock;

/// What the drain may take; short of lost leases it is a second or two.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// `enqueue_per_s` tells how far ahead the instant must lie.
pub(super) async fn measure_herd(jobs: u32, enqueue_per_s: f64, rounds: &mut Rounds) -> anyhow::Result<()> {
    let stage = QueueStage::start().await?;
    let worker = WorkerChild::start(&stage.url(), jobs, false)?;
    stage.wait_for_workers(1).await?;

    let timers = bench_timers(jobs, Duration::ZERO);
    let ahead = Duration::from_secs(2) + Duration::from_secs_f64(2.0 * f64::from(jobs) / enqueue_per_s.max(1.0));
    let instant_ms = u64::try_from(now_us() / 1000).unwrap_or_default() + u64::try_from(ahead.as_millis())?;
    // A delay is added to the time of each call; only a clock that stands still gives all calls the same due time.
    let producer = stage.store.clone().with_clock(ScriptClock::Fixed(Arc::new(AtomicU64::new(instant_ms))));
    producer.enqueue(&timers).await?;
    let left_us = instant_ms.cast_signed() * 1000 - now_us();
    ensure!(left_us > 0, "this machine is too busy: the herd was due before all of it was enqueued");

    let observed = worker.wait_for_observed(micros_to_duration(left_us) + DRAIN_TIMEOUT).await?;
    if let Some(settled_us) = observed.settled_us {
        let took = micros_to_duration(settled_us - instant_ms.cast_signed() * 1000);
        rounds.push("herd_drain_per_s", f64::from(jobs) / took.as_secs_f64().max(f64::EPSILON));
    }
    observed.push_faults(rounds);
    Ok(())
}
