//! Lateness of timers at a modest scale. The timers are due evenly over each second, but apalis-redis accepts only
//! whole seconds.
//!
//! The wanted time is rounded up to the next second, so that no job runs early. This alone makes jobs half a second
//! late on average. All jobs of a second fall due together; 8,000 would stall it.

use std::{sync::Arc, time::Duration};

use apalis_core::{
    backend::TaskSink,
    task::{Task, builder::TaskBuilder},
    worker::builder::WorkerBuilder,
};
use parking_lot::Mutex;
use servers::RedisServer;
use tokio::time::{Instant, sleep_until, timeout};

use crate::{
    apalis_redis as peer,
    figures::{LatenessFigures, now_ms},
};

const AHEAD_MS: u64 = 2_000;
const FAR: Duration = Duration::from_secs(24 * 3600);
/// Interval between calls of the producer.
const EVERY_MS: u64 = 100;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LatenessArgs {
    /// Number of timers that do not fall due
    #[arg(long, default_value_t = 10_000)]
    pending: u32,
    /// Number of timers that fall due per second
    #[arg(long, default_value_t = 500)]
    due_per_s: u32,
    /// Seconds in which timers fall due
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    #[command(flatten)]
    settings: peer::PeerSettings,
}

pub(crate) async fn measure_lateness(args: LatenessArgs) -> anyhow::Result<LatenessFigures> {
    let redis = RedisServer::start().await?;
    let config = args.settings.queue_config();
    let connection = peer::connect_to_redis(&redis).await?;
    let mut storage = peer::open_storage(&connection, &config);
    let pending: Vec<u32> = (0..args.pending).collect();
    for batch in pending.chunks(peer::PUSH) {
        let far = |_: &u32| TaskBuilder::new(0).run_after(FAR).build();
        push_tasks(&mut storage, batch.iter().map(far).collect()).await?;
    }

    let samples = Arc::new(Mutex::new(Vec::new()));
    let note = {
        let samples = samples.clone();
        move |wanted_ms: u64| {
            samples.lock().push(now_ms().saturating_sub(wanted_ms));
            std::future::ready(())
        }
    };
    let backend = peer::poll_storage(&peer::connect_to_redis(&redis).await?, &config);
    let worker = tokio::spawn(WorkerBuilder::new("peer").backend(backend).build(note).run());

    let (begun, first_ms) = (Instant::now(), now_ms() + AHEAD_MS);
    let per_call = u64::from(args.due_per_s) * EVERY_MS / 1000;
    let calls = u64::from(args.seconds) * 1000 / EVERY_MS;
    for call in 0..calls {
        sleep_until(begun + Duration::from_millis(EVERY_MS * call)).await;
        let wanted = (call * per_call..(call + 1) * per_call).map(|n| first_ms + n * 1000 / u64::from(args.due_per_s));
        let on_time = |ms: u64| TaskBuilder::new(ms).run_at_timestamp(ms.div_ceil(1000)).build();
        push_tasks(&mut storage, wanted.map(on_time).collect()).await?;
    }
    let all = usize::try_from(per_call * calls)?;
    let count = || samples.lock().len();
    let finished = async {
        while count() < all && !worker.is_finished() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = timeout(DRAIN_TIMEOUT, finished).await;
    anyhow::ensure!(count() == all, "only {} of {all} timers ran", count());
    worker.abort();
    let samples = std::mem::take(&mut *samples.lock());
    Ok(LatenessFigures::of(peer::NAME, args.pending, args.due_per_s, samples))
}

async fn push_tasks(storage: &mut apalis_redis::RedisStorage<u64>, tasks: Vec<Task<u64>>) -> anyhow::Result<()> {
    for task in tasks {
        storage.push_task(task).await?;
    }
    Ok(())
}
