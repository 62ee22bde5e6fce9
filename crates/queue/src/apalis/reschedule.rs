//! Rescheduling tasks.

use std::time::Duration;

use apalis_core::{backend::Reschedule, task::Task};
use serde_json::Value;

use super::{
    error::StorageError,
    storage::{QueueStorage, Stored},
    task::job_with_delay,
    task_id::job_of,
};
use crate::store::RescheduleVerdict;

impl<Args> Reschedule for QueueStorage<Args> {
    /// Lets the task run after `wait`, earlier or later than before. A dead task is requeued with all its tries. A
    /// running task runs again after its run, and a task that is done is pushed again.
    async fn reschedule(&mut self, task: Task<Value>, wait: Duration) -> Stored<()> {
        let queue = self.config.queue;
        let task_id = task.task_id().ok_or(StorageError::NoId)?;
        let id = job_of(queue, &task_id.to_string())?;
        match Box::pin(self.shards.reschedule(&id, &[queue], wait)).await? {
            RescheduleVerdict::Moved => Ok(()),
            RescheduleVerdict::Dead => {
                Box::pin(self.shards.requeue(&[id.as_str()], &[queue], wait)).await?;
                Ok(())
            }
            RescheduleVerdict::Running | RescheduleVerdict::Absent => {
                let job = job_with_delay(queue, id, &task, wait)?;
                Box::pin(self.shards.enqueue(&[job])).await?;
                Ok(())
            }
            RescheduleVerdict::Parked => Err(StorageError::Parked(task_id.clone())),
        }
    }
}
