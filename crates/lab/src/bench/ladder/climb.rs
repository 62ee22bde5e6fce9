//! Measuring a rung: all jobs are inserted, one call after another, and then taken and settled, as the engine does it: while one batch
//! is settled the next is taken, and no more jobs are in hand than a worker performs at once.

use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::sync::{Semaphore, mpsc};

use super::calls::{BATCH, Rung, RungCalls};
use crate::bench::{
    child::WorkerChild,
    machine,
    options::CONCURRENCY,
    redis_info,
    stage::QueueStage,
    throughput::{self, perform_waiting},
    timers::{QUEUE, bench_timers},
};

/// What one climb of one rung has shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClimbedRung {
    /// `None` for the engine: its producer is the rung below it.
    pub(super) insert: Option<PhaseFigures>,
    pub(super) process: PhaseFigures,
    /// Jobs that were not settled in the end.
    pub(super) left: u64,
}

/// Inserting, or taking and settling.
#[derive(Debug, Clone, Copy)]
pub(super) struct PhaseFigures {
    pub(super) per_s: f64,
    /// Processor time per job, in microseconds: of the process that calls, and of Redis.
    pub(super) client_us: Option<f64>,
    pub(super) redis_us: f64,
    pub(super) jobs_per_call: f64,
}

/// What has been used by a moment.
struct UsedSoFar {
    at: Instant,
    client_us: Option<u64>,
    redis_secs: f64,
    script_calls: u64,
}

impl UsedSoFar {
    async fn read(stage: &QueueStage) -> anyhow::Result<Self> {
        let script_calls = count_script_calls(stage).await?;
        let redis_secs = throughput::redis_cpu(stage).await?;
        Ok(Self { at: Instant::now(), client_us: machine::cpu_us_of_threads(), redis_secs, script_calls })
    }

    /// What was used since then. Each job goes through `calls_each` calls.
    async fn figures_since(self, stage: &QueueStage, jobs: u32, calls_each: u32) -> anyhow::Result<PhaseFigures> {
        let took = self.at.elapsed();
        let now = Self::read(stage).await?;
        let client_us = now.client_us.zip(self.client_us).map(|(now, before)| now.saturating_sub(before));
        Ok(PhaseFigures {
            per_s: f64::from(jobs) / took.as_secs_f64(),
            client_us: client_us.map(|us| us as f64 / f64::from(jobs)),
            redis_us: (now.redis_secs - self.redis_secs) * 1e6 / f64::from(jobs),
            jobs_per_call: jobs_per_call(jobs, calls_each, now.script_calls.saturating_sub(self.script_calls)),
        })
    }
}

pub(super) async fn climb_rung(rung: Rung, jobs: u32) -> anyhow::Result<ClimbedRung> {
    let stage = QueueStage::start().await?;
    let timers = bench_timers(jobs, Duration::ZERO);
    let calls = RungCalls::load(rung, &stage.store, &timers).await?;

    let before = UsedSoFar::read(&stage).await?;
    for batch in timers.chunks(BATCH) {
        calls.insert(batch).await?;
    }
    let insert = before.figures_since(&stage, jobs, 1).await?;
    stage.wait_for_aof_rewrite().await?;

    let before = UsedSoFar::read(&stage).await?;
    take_and_settle(&calls, timers.len()).await?;
    let process = before.figures_since(&stage, jobs, 2).await?;
    Ok(ClimbedRung { insert: Some(insert), process, left: count_left(&stage).await? })
}

/// The whole engine: a worker process with a handler that does nothing.
pub(super) async fn climb_engine(jobs: u32) -> anyhow::Result<ClimbedRung> {
    let stage = QueueStage::start().await?;
    stage.store.enqueue(&bench_timers(jobs, Duration::ZERO)).await?;
    stage.wait_for_aof_rewrite().await?;
    let calls = count_script_calls(&stage).await?;
    let performed = perform_waiting(&stage, jobs, WorkerChild::start).await?;
    let calls = count_script_calls(&stage).await?.saturating_sub(calls);
    let process = PhaseFigures {
        per_s: performed.per_s,
        client_us: performed.worker_cpu_us,
        redis_us: performed.redis_cpu_us,
        jobs_per_call: jobs_per_call(jobs, 2, calls),
    };
    let left = count_left(&stage).await? + u64::from(performed.observed.lost);
    Ok(ClimbedRung { insert: None, process, left })
}

async fn take_and_settle(calls: &RungCalls<'_>, jobs: usize) -> anyhow::Result<()> {
    let permits = &Semaphore::new(CONCURRENCY / BATCH);
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let taking = async move {
        let (mut taken, mut sequence) = (0, 0);
        while taken < jobs {
            let permit = permits.acquire().await?;
            sequence += 1;
            let batch = calls.take(taken, sequence).await?;
            ensure!(batch.count() > 0, "of {jobs} jobs only {taken} could be taken");
            taken += batch.count();
            // The receiver lives longer than this loop.
            let _ = sender.send((batch, permit));
        }
        anyhow::Ok(())
    };
    let settling = async {
        while let Some((batch, permit)) = receiver.recv().await {
            calls.settle(batch).await?;
            drop(permit);
        }
        anyhow::Ok(())
    };
    tokio::try_join!(taking, settling)?;
    Ok(())
}

/// Jobs that lie in the queue or are leased.
async fn count_left(stage: &QueueStage) -> anyhow::Result<u64> {
    let stats = stage.store.queue_stats(&[QUEUE]).await?;
    Ok(stats.iter().map(|stats| stats.due + stats.scheduled + stats.leased + stats.dead).sum())
}

async fn count_script_calls(stage: &QueueStage) -> anyhow::Result<u64> {
    let stats = stage.read_info("commandstats").await?;
    Ok(stats.get("cmdstat_evalsha").and_then(|stats| redis_info::calls_in(stats)).unwrap_or_default())
}

fn jobs_per_call(jobs: u32, calls_each: u32, calls: u64) -> f64 {
    f64::from(jobs) * f64::from(calls_each) / (calls as f64).max(1.0)
}
