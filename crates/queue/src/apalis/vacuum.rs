//! Deleting dead tasks. Tasks that are done need no cleaning: the engine removes them, and their results expire.

use std::time::Duration;

use apalis_core::backend::Vacuum;

use super::storage::{QueueStorage, Stored};

/// Number of tasks per call to Redis.
const BATCH: usize = 500;

impl<Args> Vacuum for QueueStorage<Args> {
    /// Deletes all dead tasks of the queue. Returns their number.
    async fn vacuum(&mut self) -> Stored<usize> {
        self.vacuum_before(Duration::ZERO).await
    }

    /// Deletes the tasks of the queue that have been dead for this long. Returns their number.
    async fn vacuum_before(&mut self, age: Duration) -> Stored<usize> {
        let mut deleted = 0;
        loop {
            let batch = Box::pin(self.shards.discard_dead_older_than(self.config.queue, age, BATCH)).await?;
            deleted += batch;
            if batch < BATCH {
                return Ok(deleted);
            }
        }
    }
}
