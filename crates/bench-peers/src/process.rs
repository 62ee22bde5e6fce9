//! Throughput of no-op jobs. First all jobs are pushed, then a worker takes, runs and acknowledges them. A second
//! measurement pushes and runs at the same time, as dispatchq's benchmark does.
//!
//! apalis-redis pushes jobs to the scheduled set even if they are due. The script that takes jobs moves all due jobs at
//! once and fails from 8,000 on. So this benchmark moves the ready jobs to the active list before the clock starts, and
//! the worker saves that work. While pushing and running at the same time, the producer waits while too many jobs are
//! open.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use apalis_core::{
    backend::TaskSink,
    error::WorkerError,
    worker::{builder::WorkerBuilder, ext::parallelize::ParallelizeExt},
};
use apalis_redis::{Config, ConnectionManager};
use redis::AsyncCommands;
use servers::RedisServer;
use tokio::task::JoinHandle;

use crate::{
    apalis_redis as peer,
    figures::{ProcessFigures, cpu_seconds, per_second},
};

const LOOK: Duration = Duration::from_millis(1);
/// Jobs moved to the active list in one command.
const MOVE: isize = 1000;
/// Jobs pushed but not started above which the producer waits.
const MOST_OPEN: u64 = 5000;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ProcessArgs {
    /// Number of jobs
    #[arg(long, default_value_t = 200_000)]
    jobs: u64,
    #[command(flatten)]
    settings: peer::PeerSettings,
}

pub(crate) async fn measure_processing(args: ProcessArgs) -> anyhow::Result<ProcessFigures> {
    let ProcessArgs { jobs, settings } = args;
    let through_per_s = measure_flow_through(jobs, settings).await?;
    let with_leases_per_s = measure_flow_through(jobs / 10, peer::WITH_LEASES).await?;

    let redis = RedisServer::start().await?;
    let config = settings.queue_config();
    let mut connection = peer::connect_to_redis(&redis).await?;
    let begun = Instant::now();
    push_jobs(&connection, &config, jobs, || 0).await?;
    let enqueue_per_s = per_second(jobs, begun.elapsed());
    make_active(&mut connection, &config).await?;

    let cpu = cpu_seconds(redis.pid())?;
    let begun = Instant::now();
    let worker = PeerWorker::start(&redis, settings).await?;
    worker.wait_until_done(&mut connection, &config, jobs).await?;
    let process_per_s = per_second(jobs, begun.elapsed());
    let cpu = cpu_seconds(redis.pid())? - cpu;
    Ok(ProcessFigures {
        name: peer::NAME,
        version: peer::locked_version()?,
        settings: settings.settings_text(),
        enqueue_per_s,
        process_per_s,
        through_per_s,
        with_leases_per_s,
        cpu_us_per_job: cpu * 1e6 * per_second(1, Duration::from_secs(jobs)),
    })
}

async fn measure_flow_through(jobs: u64, settings: peer::PeerSettings) -> anyhow::Result<f64> {
    let redis = RedisServer::start().await?;
    let config = settings.queue_config();
    let mut connection = peer::connect_to_redis(&redis).await?;
    let worker = PeerWorker::start(&redis, settings).await?;
    let begun = Instant::now();
    push_jobs(&connection, &config, jobs, || worker.begun.load(Ordering::Relaxed) + MOST_OPEN).await?;
    worker.wait_until_done(&mut connection, &config, jobs).await?;
    Ok(per_second(jobs, begun.elapsed()))
}

/// Pushes jobs. Waits while more than `most` jobs would be pushed; 0 means no bound.
async fn push_jobs(
    connection: &ConnectionManager,
    config: &Config,
    jobs: u64,
    most: impl Fn() -> u64,
) -> anyhow::Result<()> {
    let mut storage = peer::open_storage(connection, config);
    let jobs: Vec<u64> = (0..jobs).collect();
    let mut pushed = 0;
    for batch in jobs.chunks(peer::PUSH) {
        while most() > 0 && pushed + peer::PUSH as u64 > most() {
            tokio::time::sleep(LOOK).await;
        }
        storage.push_bulk(batch.to_vec()).await?;
        pushed += batch.len() as u64;
    }
    Ok(())
}

async fn make_active(connection: &mut ConnectionManager, config: &Config) -> anyhow::Result<()> {
    loop {
        let ids: Vec<String> = connection.zrange(config.scheduled_jobs_set(), 0, MOVE - 1).await?;
        if ids.is_empty() {
            return Ok(());
        }
        let () = connection.rpush(config.active_jobs_list(), &ids).await?;
        let () = connection.zrem(config.scheduled_jobs_set(), &ids).await?;
    }
}

/// A running worker. Dropping it aborts the worker.
struct PeerWorker {
    begun: Arc<AtomicU64>,
    task: JoinHandle<Result<(), WorkerError>>,
}

impl PeerWorker {
    async fn start(redis: &RedisServer, settings: peer::PeerSettings) -> anyhow::Result<Self> {
        let begun = Arc::new(AtomicU64::new(0));
        let count = {
            let begun = begun.clone();
            move |_: u64| {
                begun.fetch_add(1, Ordering::Relaxed);
                std::future::ready(())
            }
        };
        let backend = peer::poll_storage(&peer::connect_to_redis(redis).await?, &settings.queue_config());
        let builder = WorkerBuilder::new("peer").backend(backend);
        let task = if settings.parallelize {
            tokio::spawn(builder.parallelize(tokio::spawn).build(count).run())
        } else {
            tokio::spawn(builder.build(count).run())
        };
        Ok(Self { begun, task })
    }

    /// Waits until this many jobs are acknowledged.
    async fn wait_until_done(
        &self,
        connection: &mut ConnectionManager,
        config: &Config,
        jobs: u64,
    ) -> anyhow::Result<()> {
        while self.begun.load(Ordering::Relaxed) < jobs || peer::count_done(connection, config).await? < jobs {
            anyhow::ensure!(!self.task.is_finished(), "the worker ended unexpectedly");
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}

impl Drop for PeerWorker {
    fn drop(&mut self) {
        self.task.abort();
    }
}
