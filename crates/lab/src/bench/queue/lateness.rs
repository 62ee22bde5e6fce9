//! Lateness of timers, with a million others waiting in the same queue.
//!
//! Timers are enqueued during the whole run, each two seconds ahead and 0.2 ms after the previous one. Lateness is the
//! start of the handler minus the due time, on Redis' clock. Redis runs on this machine, so the handler reads the same
//! clock. The figure includes the time from Redis to the handler, which `Delivery::lateness_ms` does not.

use std::time::{Duration, Instant};

use tokio::time::sleep_until;

use super::{
    RoundSizes, Rounds, child::WorkerChild, runs::now_us, stage::QueueStage, throughput::micros_to_duration,
    timers::bench_timer,
};
use queue::NewJob;

/// Time from enqueueing to the due time.
const AHEAD: Duration = Duration::from_secs(2);
/// Interval between calls of the producer.
const EVERY: Duration = Duration::from_millis(20);
/// Minimum time until the waiting timers are due, so that none runs here.
const FAR: Duration = Duration::from_secs(24 * 3600);
/// Timers created at once while filling, to bound this program's memory.
const FILL: u32 = 10_000;
/// Extra time for the run.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Fills the queue with timers that are due in the coming days.
pub(super) async fn fill_queue(stage: &QueueStage, pending: u32) -> anyhow::Result<()> {
    for from in (0..pending).step_by(FILL as usize) {
        let numbers = from..pending.min(from + FILL);
        let timers: Vec<NewJob> = numbers
            .map(|number| NewJob::after(&bench_timer(number), FAR + Duration::from_millis(u64::from(number) * 100)))
            .collect();
        stage.store.enqueue(&timers).await?;
    }
    Ok(())
}

/// Measures one run over a filled queue.
pub(super) async fn measure_lateness(
    stage: &QueueStage,
    sizes: &RoundSizes,
    rounds: &mut Rounds,
) -> anyhow::Result<()> {
    stage.wait_for_aof_rewrite().await?;
    let per_call = sizes.due_per_s * u32::try_from(EVERY.as_millis()).unwrap_or(u32::MAX) / 1000;
    let calls = u32::try_from(sizes.lateness_for.as_millis() / EVERY.as_millis()).unwrap_or(u32::MAX);
    let jobs = per_call * calls;
    let worker = WorkerChild::start(&stage.url(), jobs, false)?;
    stage.wait_for_workers(1).await?;

    let begun = Instant::now();
    let first_due_us = now_us() + i64::try_from(AHEAD.as_micros()).unwrap_or(i64::MAX);
    for call in 0..calls {
        sleep_until((begun + EVERY * call).into()).await;
        let now_us = now_us();
        let numbers = call * per_call..(call + 1) * per_call;
        let timers: Vec<NewJob> = numbers
            .map(|number| {
                let due_us = first_due_us + i64::from(number) * 1_000_000 / i64::from(sizes.due_per_s);
                NewJob::after(&bench_timer(number), micros_to_duration(due_us - now_us))
            })
            .collect();
        stage.store.enqueue(&timers).await?;
    }
    let observed = worker.wait_for_observed(AHEAD + DRAIN_TIMEOUT).await?;
    let took = micros_to_duration(observed.last_due_ms * 1000 - first_due_us);
    rounds.push_percentiles("lateness", observed.lateness_us);
    // Rate that the producer reached.
    rounds.push("lateness_due_per_s", f64::from(jobs) / took.as_secs_f64().max(f64::EPSILON));
    observed.push_faults(rounds);
    Ok(())
}
