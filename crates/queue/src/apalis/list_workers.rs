//! Listing workers.

use apalis_core::backend::{ListWorkers, RunningWorker};

use super::storage::{QueueStorage, Stored};
use crate::store::WorkerEntry;

impl<Args> ListWorkers for QueueStorage<Args> {
    async fn list_workers(&self) -> Stored<Vec<RunningWorker>> {
        let workers = self.list_all_workers().await?;
        Ok(workers.into_iter().filter(|worker| worker.queue == self.config.queue).collect())
    }

    /// Returns each live worker once per queue. A worker that died is listed until its last heartbeat is 60 s old.
    /// `layers` is empty, because workers do not report them.
    async fn list_all_workers(&self) -> Stored<Vec<RunningWorker>> {
        let control = self.shards.control();
        let (workers, now_ms) = (Box::pin(control.list_workers()).await?, Box::pin(control.now_ms()).await?);
        Ok(workers.iter().flat_map(|worker| running_workers(worker, now_ms)).collect())
    }
}

fn running_workers(worker: &WorkerEntry, now_ms: u64) -> impl Iterator<Item = RunningWorker> {
    worker.info.queues.iter().map(move |queue| RunningWorker {
        id: worker.replica.clone(),
        queue: queue.clone(),
        backend: concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")).to_owned(),
        started_at: worker.info.started_ms / 1000,
        last_heartbeat: now_ms.saturating_sub(worker.seen_ms_ago) / 1000,
        layers: String::new(),
    })
}
