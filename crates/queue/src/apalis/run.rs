//! The engine's loops behind a storage, from a worker's first poll until it has stopped.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use apalis_core::worker::context::WorkerContext;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
    time::MissedTickBehavior,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::warn;

use super::config::QueueConfig;
use crate::{
    gate::Gate,
    registry::Registry,
    shards::Shards,
    store::StoreError,
    supervisor::{EngineLoops, EngineSettings, ResultSender, Supervisor, TicketedJob, new_boot},
};

/// Interval of checks whether the worker is paused or stopping. apalis has no notification for it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Loops of one worker. When it is dropped, they hand back all jobs and end.
pub(super) struct StorageRun {
    pub(super) supervisor: Arc<Supervisor>,
    pub(super) jobs: mpsc::UnboundedReceiver<TicketedJob>,
    pub(super) results: ResultSender,
    stop: CancellationToken,
    /// Cancels `stop` when the worker is dropped without an end.
    _stop_when_dropped: DropGuard,
    task: JoinHandle<()>,
}

impl StorageRun {
    pub(super) fn start(shards: &Shards, config: &QueueConfig, worker: &WorkerContext) -> Self {
        let missing_epoch = config.redis_only.then(|| Arc::new(Notify::new()));
        let gate = Gate::new_open();
        let settings = EngineSettings {
            shards: watch::channel(shards.clone()).1,
            registry: Registry::new(),
            queues: vec![(config.queue, config.concurrency)],
            name: Some(worker.name().to_owned()),
            boot: new_boot(),
            gate: gate.clone(),
            on_missing_epoch: missing_epoch.clone(),
            on_dead: None,
        };
        let stop = CancellationToken::new();
        let (channel, jobs) = mpsc::unbounded_channel();
        let results = ResultSender::new();
        let loops = EngineLoops::start(settings, vec![channel], results.clone(), &stop);
        let supervisor = loops.supervisor.clone();
        let watch = WorkerWatch { worker: worker.clone(), gate, shards: shards.clone(), missing_epoch };
        let task = tokio::spawn(watch.run(loops, stop.clone()));
        Self { supervisor, jobs, results, _stop_when_dropped: stop.clone().drop_guard(), stop, task }
    }

    /// Writes the last results, and hands back the tasks that have not started.
    pub(super) fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stop.cancel();
        Pin::new(&mut self.task).poll(cx).map(|_| ())
    }
}

/// Follows the worker's state.
struct WorkerWatch {
    worker: WorkerContext,
    gate: Gate,
    shards: Shards,
    missing_epoch: Option<Arc<Notify>>,
}

impl WorkerWatch {
    async fn run(self, mut loops: EngineLoops, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => {
                    if self.worker.is_shutting_down() {
                        break;
                    }
                    let is_paused = self.worker.is_paused();
                    self.gate.set_open(!is_paused);
                    if is_paused {
                        // Other workers run the tasks.
                        loops.hand_back_waiting().await;
                    }
                }
                () = wait_for_missing_epoch(self.missing_epoch.as_deref()) => {
                    if let Err(error) = open_queue(&self.shards).await {
                        warn!(%error, "An empty Redis could not be opened as a new queue yet; this is retried.");
                    }
                }
            }
        }
        loops.stop_taking().await;
        // The worker stops after its running tasks.
        stop.cancelled().await;
        loops.finish().await;
    }
}

async fn wait_for_missing_epoch(missing: Option<&Notify>) {
    match missing {
        Some(missing) => missing.notified().await,
        None => std::future::pending().await,
    }
}

/// Marks each shard that has no epoch as complete, because no other place has its jobs.
pub(super) async fn open_queue(shards: &Shards) -> Result<(), StoreError> {
    for store in shards.stores() {
        if store.epoch().await?.is_none() {
            let run_id = store.run_id().await?;
            let marker = store.begin_rebuild().await?;
            // Returns `false` if another worker has just done the same.
            store.finish_rebuild(&marker, &run_id).await?;
        }
    }
    Ok(())
}
