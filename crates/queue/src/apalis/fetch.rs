//! Finding one task.

use apalis_core::{
    backend::FetchById,
    task::{Task, task_id::TaskId},
};
use serde_json::Value;

use super::{
    storage::{QueueStorage, Stored},
    task::found_task,
    task_id::job_of,
};

impl<Args> FetchById for QueueStorage<Args> {
    /// Returns the task if it is waiting, running or dead. A task that is done is no longer in the queue.
    async fn fetch_by_id(&mut self, id: &TaskId) -> Stored<Option<Task<Value>>> {
        let queue = self.config.queue;
        let id = job_of(queue, &id.to_string())?;
        let found = Box::pin(self.shards.find_job(&id, &[queue])).await?;
        Ok(found.as_ref().and_then(found_task))
    }
}
