//! What a number of shards costs the engine: one Redis, a worker process, jobs that do nothing, and numbers of shards in turn, so
//! that whatever else the machine does meets all alike.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;
use servers::RedisServer;
use tokio::time::sleep;
use workers::{NewJob, RedisConfig, ShardCount, Shards};

use super::{options::ClusterOptions, plain_report::PlainReport};
use crate::bench::{
    child::WorkerChild,
    machine::{MachineInfo, SoftwareVersions},
    progress::StepProgress,
    redis_info,
    runs::ObservedRuns,
    throughput::micros_to_duration,
    timers::{bench_timer, bench_timers},
};

/// Jobs whose lateness is measured, one after the other, and how far ahead the first of them is enqueued.
const TIMED_JOBS: u32 = 10_000;
const APART: Duration = Duration::from_micros(200);
const AHEAD: Duration = Duration::from_secs(2);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(240);
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(10);

/// One number of shards, once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PlainTurn {
    /// Jobs that lay in the queue, due, when the worker started.
    pub(super) waiting: ObservedRuns,
    /// Jobs that fell due one by one.
    pub(super) timed: ObservedRuns,
    pub(super) per_s: f64,
    /// Processor time per waiting job.
    pub(super) worker_cpu_us: f64,
    pub(super) redis_cpu_us: f64,
}

impl PlainTurn {
    pub(super) fn cpu_us(&self) -> f64 {
        self.worker_cpu_us + self.redis_cpu_us
    }
}

/// Returns the report as text and as JSON, and whether no job was lost, early or run twice.
pub(super) async fn measure_plain(options: &ClusterOptions) -> anyhow::Result<(String, Value, bool)> {
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let rounds = options.rounds.get();
    let progress = StepProgress::new(rounds * options.shards.len(), options.json);
    let mut turns = vec![Vec::with_capacity(rounds); options.shards.len()];
    for round in 1..=rounds {
        for (count, turns) in options.shards.iter().zip(&mut turns) {
            let what = format!("{} shards, round {round} of {rounds}", count.get());
            let turn = progress.run_step(what.clone(), measure_turn(*count, options.jobs.get())).await;
            turns.push(turn.context(what)?);
        }
    }
    let by_shards = options.shards.iter().map(|count| count.get()).zip(turns).collect();
    let report = PlainReport { jobs: options.jobs.get(), rounds, by_shards, machine, versions };
    Ok((report.to_text(), report.to_json(), report.violations().is_empty()))
}

async fn measure_turn(count: ShardCount, jobs: u32) -> anyhow::Result<PlainTurn> {
    let redis = RedisServer::start().await.context("the benchmark needs a Redis of its own")?;
    let shards = Shards::connect_lazy(&RedisConfig::new(redis.url()), count, &[])?;
    for store in shards.stores() {
        // There is nothing to rebuild, and workers take no job before that is established.
        let (run_id, marker) = (store.run_id().await?, store.begin_rebuild().await?);
        if !store.finish_rebuild(&marker, &run_id).await? {
            bail!("another program uses the private Redis at {}", redis.url());
        }
    }
    shards.enqueue(&bench_timers(jobs, Duration::ZERO)).await?;
    redis_info::wait_for_aof_rewrite(redis.port()).await?;
    let redis_before = read_cpu_s(&redis).await?;
    let worker = WorkerChild::start_sharded(&redis.url(), jobs, count.get())?;
    let waiting = worker.wait_for_observed(DRAIN_TIMEOUT).await?;
    let redis_cpu_s = read_cpu_s(&redis).await? - redis_before;
    let settled_us = waiting.settled_us.with_context(|| format!("of {jobs} jobs only {} ran", waiting.jobs))?;
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a benchmark")]
    let worker_cpu_us = waiting.cpu_ms.context("the system does not tell processor times")? as f64 * 1e3;
    Ok(PlainTurn {
        waiting,
        timed: measure_timed(&redis, &shards, count).await?,
        per_s: f64::from(jobs) / micros_to_duration(settled_us - waiting.began_us).as_secs_f64(),
        worker_cpu_us: worker_cpu_us / f64::from(jobs),
        redis_cpu_us: redis_cpu_s * 1e6 / f64::from(jobs),
    })
}

/// The worker waits for jobs that are due one by one, over all shards.
async fn measure_timed(redis: &RedisServer, shards: &Shards, count: ShardCount) -> anyhow::Result<ObservedRuns> {
    let worker = WorkerChild::start_sharded(&redis.url(), TIMED_JOBS, count.get())?;
    let begun = Instant::now();
    while shards.control().list_workers().await?.is_empty() {
        if begun.elapsed() > STARTUP_TIMEOUT {
            bail!("the worker process did not start within {STARTUP_TIMEOUT:?}");
        }
        sleep(LOOK).await;
    }
    let timers: Vec<NewJob> =
        (0..TIMED_JOBS).map(|number| NewJob::after(&bench_timer(number), AHEAD + APART * number)).collect();
    shards.enqueue(&timers).await?;
    worker.wait_for_observed(AHEAD + APART * TIMED_JOBS + DRAIN_TIMEOUT).await
}

async fn read_cpu_s(redis: &RedisServer) -> anyhow::Result<f64> {
    Ok(redis_info::cpu_seconds_in(&redis_info::read_info(redis.port(), "cpu").await?))
}
