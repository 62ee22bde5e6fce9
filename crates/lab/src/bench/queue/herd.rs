//! 100,000 timers that are due at the same time, as after an outage or at the end of a promotion.
//!
//! The worker starts before and is idle. No timer may be lost or run twice. The rate counts from the due time until the
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

/// Timeout for the drain. Without lost leases it takes a second or two.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Measures the drain. `enqueue_per_s` determines how far ahead the due time is.
pub(super) async fn measure_herd(jobs: u32, enqueue_per_s: f64, rounds: &mut Rounds) -> anyhow::Result<()> {
    let stage = QueueStage::start().await?;
    let worker = WorkerChild::start(&stage.url(), jobs, false)?;
    stage.wait_for_workers(1).await?;

    let timers = bench_timers(jobs, Duration::ZERO);
    let ahead = Duration::from_secs(2) + Duration::from_secs_f64(2.0 * f64::from(jobs) / enqueue_per_s.max(1.0));
    let instant_ms = u64::try_from(now_us() / 1000).unwrap_or_default() + u64::try_from(ahead.as_millis())?;
    // A delay is added to the time of each call. Only a fixed clock gives all calls the same due time.
    let producer = stage.store.clone().with_clock(ScriptClock::Fixed(Arc::new(AtomicU64::new(instant_ms))));
    producer.enqueue(&timers).await?;
    let left_us = instant_ms.cast_signed() * 1000 - now_us();
    ensure!(left_us > 0, "this machine is too busy: the timers were due before all of them were enqueued");

    let observed = worker.wait_for_observed(micros_to_duration(left_us) + DRAIN_TIMEOUT).await?;
    if let Some(settled_us) = observed.settled_us {
        let took = micros_to_duration(settled_us - instant_ms.cast_signed() * 1000);
        rounds.push("herd_drain_per_s", f64::from(jobs) / took.as_secs_f64().max(f64::EPSILON));
    }
    observed.push_faults(rounds);
    Ok(())
}
