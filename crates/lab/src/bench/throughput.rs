//! How many jobs one producer enqueues and one worker process performs in a second: first one, then the other, and then
//! both at once.
//!
//! The producer makes one call after another, 500 jobs each. The worker starts when all jobs lie in the queue, due: take,
//! decode, run the handler, settle. Its clock runs from its start until the last result is written. At once, the clock
//! runs from the first call to the last result.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::{
    child::WorkerChild,
    redis_info,
    runs::{ObservedRuns, now_us},
    stage::QueueStage,
    timers::bench_timers,
};

const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ThroughputRound {
    pub(super) enqueue_per_s: f64,
    pub(super) process_per_s: f64,
    pub(super) through_per_s: f64,
    pub(super) lost: u32,
    pub(super) doubled: u32,
    /// Processor time per job performed: what it takes beside any other work on the machine.
    pub(super) worker_cpu_us: Option<f64>,
    pub(super) redis_cpu_us: f64,
    /// The same performed by a worker that records metrics.
    pub(super) metered_per_s: f64,
    pub(super) metered_cpu_us: Option<f64>,
}

/// What lay in the queue was performed by one worker.
pub(super) struct PerformedJobs {
    pub(super) observed: ObservedRuns,
    pub(super) per_s: f64,
    /// Processor time per job.
    pub(super) worker_cpu_us: Option<f64>,
    pub(super) redis_cpu_us: f64,
}

pub(super) async fn measure_throughput(jobs: u32) -> anyhow::Result<ThroughputRound> {
    let through = measure_flow_through(jobs).await?;
    let (enqueue_per_s, plain) = measure_processing(jobs, WorkerChild::start).await?;
    let (_, metered) = measure_processing(jobs, WorkerChild::start_metered).await?;
    let observed = [plain.observed, metered.observed, through.1];
    Ok(ThroughputRound {
        enqueue_per_s,
        process_per_s: plain.per_s,
        through_per_s: through.0,
        lost: observed.iter().map(|observed| observed.lost).sum(),
        doubled: observed.iter().map(|observed| observed.doubled).sum(),
        worker_cpu_us: plain.worker_cpu_us,
        redis_cpu_us: plain.redis_cpu_us,
        metered_per_s: metered.per_s,
        metered_cpu_us: metered.worker_cpu_us,
    })
}

/// Enqueues, then has it performed. Answers the jobs enqueued per second, and the rest.
async fn measure_processing(
    jobs: u32,
    start: fn(&str, u32) -> anyhow::Result<WorkerChild>,
) -> anyhow::Result<(f64, PerformedJobs)> {
    let stage = QueueStage::start().await?;
    let timers = bench_timers(jobs, Duration::ZERO);
    let begun = Instant::now();
    stage.store.enqueue(&timers).await?;
    let enqueue_per_s = f64::from(jobs) / begun.elapsed().as_secs_f64();
    drop(timers);
    stage.wait_for_aof_rewrite().await?;
    Ok((enqueue_per_s, perform_waiting(&stage, jobs, start).await?))
}

/// Has the timers 0..`jobs` performed that lie in the queue, due, by one worker.
pub(super) async fn perform_waiting(
    stage: &QueueStage,
    jobs: u32,
    start: fn(&str, u32) -> anyhow::Result<WorkerChild>,
) -> anyhow::Result<PerformedJobs> {
    let redis_cpu = redis_cpu(stage).await?;
    let observed = start(&stage.url(), jobs)?.wait_for_observed(DRAIN_TIMEOUT).await?;
    let settled_us = observed.settled_us.with_context(|| format!("of {jobs} jobs only {} ran", observed.jobs))?;
    let per_s = f64::from(jobs) / micros_to_duration(settled_us - observed.began_us).as_secs_f64();
    let redis_cpu = self::redis_cpu(stage).await? - redis_cpu;
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a benchmark")]
    let worker_cpu_us = observed.cpu_ms.map(|ms| ms as f64 * 1e3 / f64::from(jobs));
    Ok(PerformedJobs { observed, per_s, worker_cpu_us, redis_cpu_us: redis_cpu * 1e6 / f64::from(jobs) })
}

/// Enqueued and performed at the same time, jobs per second.
async fn measure_flow_through(jobs: u32) -> anyhow::Result<(f64, ObservedRuns)> {
    let stage = QueueStage::start().await?;
    let worker = WorkerChild::start(&stage.url(), jobs)?;
    stage.wait_for_workers(1).await?;
    let timers = bench_timers(jobs, Duration::ZERO);
    let begun_us = now_us();
    stage.store.enqueue(&timers).await?;
    let observed = worker.wait_for_observed(DRAIN_TIMEOUT).await?;
    let settled_us = observed.settled_us.with_context(|| format!("of {jobs} jobs only {} ran", observed.jobs))?;
    Ok((f64::from(jobs) / micros_to_duration(settled_us - begun_us).as_secs_f64(), observed))
}

/// Seconds of processor time that Redis has used.
pub(super) async fn redis_cpu(stage: &QueueStage) -> anyhow::Result<f64> {
    Ok(redis_info::cpu_seconds_in(&stage.read_info("cpu").await?))
}

/// A span of time between two moments; zero if they stand the wrong way round.
pub(super) fn micros_to_duration(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or_default())
}
