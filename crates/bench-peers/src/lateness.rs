//! Lateness of timers at a modest scale. The timers are due evenly over each second, but apalis-redis accepts only
//! whole seconds.
//!
//! The wanted time is rounded up to the next second, so that no job runs early. This alone makes jobs half a second
//! late on average. All jobs of a second fall due together; 8,000 would stall it.

use apalis_core::{
    backend::TaskSink,
    task::{Task, builder::TaskBuilder},
    worker::builder::WorkerBuilder,
};
use servers::RedisServer;

use crate::{
    apalis_redis as peer,
    figures::LatenessFigures,
    timer_load::{FAR, TimerLoad, TimerSamples},
};

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LatenessArgs {
    #[command(flatten)]
    load: TimerLoad,
    #[command(flatten)]
    settings: peer::PeerSettings,
}

pub(crate) async fn measure_lateness(args: LatenessArgs) -> anyhow::Result<LatenessFigures> {
    let redis = RedisServer::start().await?;
    let config = args.settings.queue_config();
    let connection = peer::connect_to_redis(&redis).await?;
    let mut storage = peer::open_storage(&connection, &config);
    let pending: Vec<u32> = (0..args.load.pending).collect();
    for batch in pending.chunks(peer::PUSH) {
        let far = |_: &u32| TaskBuilder::new(0).run_after(FAR).build();
        push_tasks(&mut storage, batch.iter().map(far).collect()).await?;
    }
    let samples = TimerSamples::default();
    let note = {
        let samples = samples.clone();
        move |wanted_ms: u64| {
            samples.record(wanted_ms);
            std::future::ready(())
        }
    };
    let backend = peer::poll_storage(&peer::connect_to_redis(&redis).await?, &config);
    let worker = tokio::spawn(WorkerBuilder::new("peer").backend(backend).build(note).run());
    let push = async |wanted: Vec<u64>| {
        let on_time = |ms: u64| TaskBuilder::new(ms).run_at_timestamp(ms.div_ceil(1000)).build();
        push_tasks(&mut storage, wanted.into_iter().map(on_time).collect()).await
    };
    let figures = args.load.run(peer::NAME, samples, || worker.is_finished(), push).await;
    worker.abort();
    figures
}

async fn push_tasks(storage: &mut apalis_redis::RedisStorage<u64>, tasks: Vec<Task<u64>>) -> anyhow::Result<()> {
    for task in tasks {
        storage.push_task(task).await?;
    }
    Ok(())
}
