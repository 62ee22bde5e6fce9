//! Statistics of this storage's queue and of all queues.

use apalis_core::backend::{Metrics, Statistic};

use super::{
    list_queues::find_queues,
    statistics::statistics_of,
    storage::{QueueStorage, Stored},
};

impl<Args> Metrics for QueueStorage<Args> {
    async fn global(&self) -> Stored<Vec<Statistic>> {
        let queues = Box::pin(find_queues(&self.shards, self.config.queue)).await?;
        let queues: Vec<&str> = queues.iter().map(String::as_str).collect();
        self.statistics(&queues).await
    }

    async fn fetch_by_queue(&self) -> Stored<Vec<Statistic>> {
        self.statistics(&[self.config.queue]).await
    }
}

impl<Args> QueueStorage<Args> {
    async fn statistics(&self, queues: &[&str]) -> Stored<Vec<Statistic>> {
        let now_ms = Box::pin(self.shards.control().now_ms()).await?;
        Ok(statistics_of(&Box::pin(self.shards.queue_stats(queues)).await?, now_ms))
    }
}
