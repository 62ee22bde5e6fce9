//! Listing queues.

use std::collections::BTreeSet;

use apalis_core::backend::{ListQueues, QueueInfo};

use super::{
    statistics::statistics_of,
    storage::{QueueStorage, Stored},
};
use crate::{shards::Shards, store::StoreError};

impl<Args> ListQueues for QueueStorage<Args> {
    /// Returns the queues that have a job or a worker, and this storage's queue. `activity` is empty, because the engine
    /// keeps no history.
    async fn list_queues(&self) -> Stored<Vec<QueueInfo>> {
        let names = Box::pin(find_queues(&self.shards, self.config.queue)).await?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let workers = Box::pin(self.shards.control().list_workers()).await?;
        let now_ms = Box::pin(self.shards.control().now_ms()).await?;
        let stats = Box::pin(self.shards.queue_stats(&names)).await?;
        let info = |stats| {
            let stats: crate::store::QueueStats = stats;
            let of_queue = workers.iter().filter(|worker| worker.info.queues.contains(&stats.queue));
            QueueInfo {
                workers: of_queue.map(|worker| worker.replica.clone()).collect(),
                stats: statistics_of(std::slice::from_ref(&stats), now_ms),
                name: stats.queue,
                activity: Vec::new(),
            }
        };
        Ok(stats.into_iter().map(info).collect())
    }
}

/// Returns the names of all queues that have a job or a worker, and `own`. Scans all keys of Redis, so it is not for
/// frequent calls.
pub(super) async fn find_queues(shards: &Shards, own: &str) -> Result<Vec<String>, StoreError> {
    let mut names = BTreeSet::from([own.to_owned()]);
    for worker in shards.control().list_workers().await? {
        names.extend(worker.info.queues);
    }
    for store in shards.stores() {
        let keys = store.keys();
        let sets =
            [keys.due_set(""), keys.leased_set(""), keys.dead_set(""), keys.suspect_set(""), keys.parked_set("")];
        // Queues have few keys, so one scan for all their sets takes as long as a scan for one of them.
        let tag = keys.due_set("").replace("due:", "*");
        let found = store.find_keys(&tag, "zset").await?;
        names.extend(
            found.iter().filter_map(|key| sets.iter().find_map(|set| key.strip_prefix(set))).map(str::to_owned),
        );
    }
    Ok(names.into_iter().collect())
}
