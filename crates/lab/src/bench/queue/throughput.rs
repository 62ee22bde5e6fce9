//! Jobs per second that one producer enqueues and one worker process performs: first separately, then at the same time.
//!
//! The producer makes one call after another, with 500 jobs each. The worker starts when all jobs are in the queue and
//! due: take, decode, run the handler, settle. Its time counts from its start until the last result is written. With
//! both at the same time, the time counts from the first call to the last result.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::{Rounds, child::WorkerChild, redis_info, runs::now_us, stage::QueueStage, timers::bench_timers};

const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);

pub(super) async fn measure_throughput(jobs: u32, rounds: &mut Rounds) -> anyhow::Result<()> {
    measure_flow_through(jobs, rounds).await?;
    measure_processing(jobs, "process", rounds).await?;
    measure_processing(jobs, "metered", rounds).await
}

/// Enqueues jobs, then starts a worker that performs them. The worker records metrics if `what` is `metered`.
async fn measure_processing(jobs: u32, what: &str, rounds: &mut Rounds) -> anyhow::Result<()> {
    let stage = QueueStage::start().await?;
    let timers = bench_timers(jobs, Duration::ZERO);
    let begun = Instant::now();
    stage.store.enqueue(&timers).await?;
    let enqueue_per_s = f64::from(jobs) / begun.elapsed().as_secs_f64();
    drop(timers);
    stage.wait_for_aof_rewrite().await?;

    let redis_cpu_s = read_redis_cpu_s(&stage).await?;
    let worker = WorkerChild::start(&stage.url(), jobs, what == "metered")?;
    let observed = worker.wait_for_observed(DRAIN_TIMEOUT).await?;
    let settled_us = observed.settled_us.with_context(|| format!("only {} of {jobs} jobs ran", observed.jobs))?;
    let took = micros_to_duration(settled_us - observed.began_us);
    let redis_cpu_s = read_redis_cpu_s(&stage).await? - redis_cpu_s;
    rounds.push(format!("{what}_per_s"), f64::from(jobs) / took.as_secs_f64());
    if let Some(ms) = observed.cpu_ms {
        rounds.push(format!("{what}_cpu_us_worker"), ms as f64 * 1e3 / f64::from(jobs));
    }
    if what == "process" {
        rounds.push("enqueue_per_s", enqueue_per_s);
        rounds.push("process_cpu_us_redis", redis_cpu_s * 1e6 / f64::from(jobs));
    }
    observed.push_faults(rounds);
    Ok(())
}

/// Measures jobs per second that are enqueued and performed at the same time.
async fn measure_flow_through(jobs: u32, rounds: &mut Rounds) -> anyhow::Result<()> {
    let stage = QueueStage::start().await?;
    let worker = WorkerChild::start(&stage.url(), jobs, false)?;
    stage.wait_for_workers(1).await?;
    let timers = bench_timers(jobs, Duration::ZERO);
    let begun_us = now_us();
    stage.store.enqueue(&timers).await?;
    let observed = worker.wait_for_observed(DRAIN_TIMEOUT).await?;
    let settled_us = observed.settled_us.with_context(|| format!("only {} of {jobs} jobs ran", observed.jobs))?;
    rounds.push("through_per_s", f64::from(jobs) / micros_to_duration(settled_us - begun_us).as_secs_f64());
    observed.push_faults(rounds);
    Ok(())
}

/// Reads the CPU time of Redis in seconds.
async fn read_redis_cpu_s(stage: &QueueStage) -> anyhow::Result<f64> {
    Ok(redis_info::cpu_seconds_in(&stage.read_info("cpu").await?))
}

/// Converts microseconds to a duration. Negative values become zero.
pub(super) fn micros_to_duration(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or_default())
}
