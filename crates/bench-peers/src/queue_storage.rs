//! The engine's backend for apalis, measured as another queue: `dispatchq bench queue --peer queue-storage`.
//!
//! It runs the same worker as `bench-peers`, with the storage of `crates/queue` instead of that of apalis-redis. Leases
//! are always on.

mod figures;
mod timer_load;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use apalis_core::{backend::TaskSink, error::WorkerError, task::builder::TaskBuilder, worker::builder::WorkerBuilder};
use clap::Parser;
use queue::{QueueStorage, RunAfter};
use servers::RedisServer;
use tokio::task::JoinHandle;

use crate::{
    figures::{LatenessFigures, ProcessFigures, cpu_seconds, now_ms, per_second},
    timer_load::{FAR, TimerLoad, TimerSamples},
};

const NAME: &str = "queue-storage";
const QUEUE: &str = "bench";
/// Tasks that the worker has leased at most, as in dispatchq's own benchmark.
const CONCURRENCY: usize = 1_000;
const LOOK: Duration = Duration::from_millis(1);
const PUSH: usize = 500;
const MOST_OPEN: u64 = 5_000;

#[derive(Debug, Parser)]
#[command(name = "queue-storage", about = "Measure the queue as a backend of apalis")]
enum StorageCommand {
    /// Measure no-op tasks per second
    Process {
        #[arg(long, default_value_t = 200_000)]
        jobs: u64,
    },
    /// Measure how late tasks start
    Lateness(TimerLoad),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let answer = match StorageCommand::parse() {
        StorageCommand::Process { jobs } => serde_json::to_string(&measure_processing(jobs).await?)?,
        StorageCommand::Lateness(load) => serde_json::to_string(&measure_lateness(load).await?)?,
    };
    println!("{answer}");
    Ok(())
}

async fn measure_processing(jobs: u64) -> anyhow::Result<ProcessFigures> {
    let through_per_s = measure_flow_through(jobs).await?;
    let (redis, storage) = start_storage().await?;
    let begun = Instant::now();
    push_jobs(&storage, jobs, || 0).await?;
    let enqueue_per_s = per_second(jobs, begun.elapsed());
    let cpu = cpu_seconds(redis.pid())?;
    let begun = Instant::now();
    let worker = StorageWorker::start(&storage);
    worker.wait_until_done(&storage, jobs).await?;
    let process_per_s = per_second(jobs, begun.elapsed());
    let cpu = cpu_seconds(redis.pid())? - cpu;
    Ok(ProcessFigures {
        name: NAME,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings: format!("{CONCURRENCY} tasks at once, leases on"),
        enqueue_per_s,
        process_per_s,
        through_per_s,
        with_leases_per_s: through_per_s,
        cpu_us_per_job: cpu * 1e6 * per_second(1, Duration::from_secs(jobs)),
    })
}

async fn measure_flow_through(jobs: u64) -> anyhow::Result<f64> {
    let (_redis, storage) = start_storage().await?;
    let worker = StorageWorker::start(&storage);
    let begun = Instant::now();
    push_jobs(&storage, jobs, || worker.begun.load(Ordering::Relaxed) + MOST_OPEN).await?;
    worker.wait_until_done(&storage, jobs).await?;
    Ok(per_second(jobs, begun.elapsed()))
}

async fn start_storage() -> anyhow::Result<(RedisServer, QueueStorage<u64>)> {
    let redis = RedisServer::start().await?;
    let storage = QueueStorage::connect(&redis.url(), QUEUE).await?.concurrency(CONCURRENCY);
    Ok((redis, storage))
}

/// Pushes jobs. Waits while more than `most` jobs would be pushed; 0 means no bound.
async fn push_jobs(storage: &QueueStorage<u64>, jobs: u64, most: impl Fn() -> u64) -> anyhow::Result<()> {
    let mut storage = storage.clone();
    let jobs: Vec<u64> = (0..jobs).collect();
    let mut pushed = 0;
    for batch in jobs.chunks(PUSH) {
        while most() > 0 && pushed + PUSH as u64 > most() {
            tokio::time::sleep(LOOK).await;
        }
        storage.push_bulk(batch.to_vec()).await?;
        pushed += batch.len() as u64;
    }
    Ok(())
}

/// A running worker. Dropping it aborts the worker.
struct StorageWorker {
    begun: Arc<AtomicU64>,
    task: JoinHandle<Result<(), WorkerError>>,
}

impl StorageWorker {
    fn start(storage: &QueueStorage<u64>) -> Self {
        let begun = Arc::new(AtomicU64::new(0));
        let count = begun.clone();
        let handler = move |_: u64| {
            count.fetch_add(1, Ordering::Relaxed);
            std::future::ready(())
        };
        let worker = WorkerBuilder::new("storage").backend(storage.clone()).build(handler);
        Self { begun, task: tokio::spawn(worker.run()) }
    }

    /// Waits until this many jobs have run and are settled.
    async fn wait_until_done(&self, storage: &QueueStorage<u64>, jobs: u64) -> anyhow::Result<()> {
        while self.begun.load(Ordering::Relaxed) < jobs || count_left(storage).await? > 0 {
            anyhow::ensure!(!self.task.is_finished(), "the worker ended unexpectedly");
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}

impl Drop for StorageWorker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn count_left(storage: &QueueStorage<u64>) -> anyhow::Result<u64> {
    let stats = storage.shards().queue_stats(&[QUEUE]).await?;
    Ok(stats.iter().map(|queue| queue.due + queue.leased).sum())
}

/// Measures the same timers as `bench-peers`.
async fn measure_lateness(load: TimerLoad) -> anyhow::Result<LatenessFigures> {
    let (_redis, storage) = start_storage().await?;
    let mut producer = storage.clone();
    let far = (0..load.pending).map(|_| TaskBuilder::new(0).data(RunAfter(FAR)).build());
    producer.push_all(futures_util::stream::iter(far)).await?;
    let samples = TimerSamples::default();
    let handler = {
        let samples = samples.clone();
        move |wanted_ms: u64| {
            samples.record(wanted_ms);
            std::future::ready(())
        }
    };
    let worker = tokio::spawn(WorkerBuilder::new("storage").backend(storage).build(handler).run());
    let push = async |wanted: Vec<u64>| {
        let on_time = |ms: u64| {
            let delay = Duration::from_millis(ms.saturating_sub(now_ms()));
            TaskBuilder::new(ms).data(RunAfter(delay)).build()
        };
        Ok(producer.push_all(futures_util::stream::iter(wanted.into_iter().map(on_time))).await?)
    };
    let figures = load.run(NAME, samples, || worker.is_finished(), push).await;
    worker.abort();
    figures
}
