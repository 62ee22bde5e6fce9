//! Waiting for the results of tasks.

use std::{pin::Pin, time::Duration};

use apalis_core::{
    backend::{TaskResult, WaitForCompletion},
    task::{status::Status, task_id::TaskId},
};
use futures_util::{Stream, stream};
use serde::de::DeserializeOwned;

use super::{
    error::StorageError,
    storage::{QueueStorage, Stored},
    stored_result::StoredResult,
    task_id::job_of,
};

/// Interval at which a waiting caller asks Redis for each of its tasks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// State of a task that a caller waits for.
enum Found<Output> {
    /// Waiting or running.
    Unfinished,
    Ended(TaskResult<Output>),
}

impl<Args> QueueStorage<Args> {
    async fn find_result<Output: DeserializeOwned>(&self, task_id: &TaskId) -> Stored<Found<Output>> {
        let queue = self.config.queue;
        let id = job_of(queue, &task_id.to_string())?;
        if let Some(job) = Box::pin(self.shards.find_job(&id, &[queue])).await? {
            let Some(dead) = job.dead else { return Ok(Found::Unfinished) };
            let (attempt, result) = (dead.failed as usize, Err(dead.error));
            return Ok(Found::Ended(TaskResult { task_id: task_id.clone(), attempt, status: Status::Failed, result }));
        }
        let Some(text) = Box::pin(StoredResult::find(&self.shards, &id)).await? else {
            return Err(StorageError::Unknown(task_id.clone()));
        };
        let unreadable =
            |error: serde_json::Error| StorageError::Result { id: task_id.clone(), reason: error.to_string() };
        let StoredResult { attempt, response } = serde_json::from_str(&text).map_err(unreadable)?;
        let result = Ok(serde_json::from_value(response).map_err(unreadable)?);
        Ok(Found::Ended(TaskResult { task_id: task_id.clone(), attempt, status: Status::Done, result }))
    }
}

impl<Args, Output> WaitForCompletion<Output> for QueueStorage<Args>
where
    Args: 'static,
    Output: DeserializeOwned + Send + 'static,
{
    type ResultStream = Pin<Box<dyn Stream<Item = Stored<TaskResult<Output>>> + Send>>;

    /// Returns the results of these tasks as they end. Wait for a task after it was pushed: a task that is unknown yields
    /// [`StorageError::Unknown`]. After any other error the stream continues with the same task.
    fn wait_for(&mut self, task_ids: impl IntoIterator<Item = TaskId>) -> Self::ResultStream {
        let waiting = Waiting { storage: self.clone(), ids: task_ids.into_iter().collect(), next: 0 };
        Box::pin(stream::unfold(waiting, Waiting::next_result))
    }

    /// Returns the results of those of these tasks that have ended.
    async fn check_status(
        &mut self,
        task_ids: impl IntoIterator<Item = TaskId> + Send,
    ) -> Stored<Vec<TaskResult<Output>>> {
        let ids: Vec<TaskId> = task_ids.into_iter().collect();
        let mut ended = Vec::new();
        for id in &ids {
            if let Found::Ended(result) = self.find_result(id).await? {
                ended.push(result);
            }
        }
        Ok(ended)
    }
}

/// Tasks that a caller waits for.
struct Waiting<Args> {
    storage: QueueStorage<Args>,
    ids: Vec<TaskId>,
    /// Position of the task to look for next.
    next: usize,
}

impl<Args> Waiting<Args> {
    async fn next_result<Output: DeserializeOwned>(mut self) -> Option<(Stored<TaskResult<Output>>, Self)> {
        while !self.ids.is_empty() {
            if self.next >= self.ids.len() {
                tokio::time::sleep(LOOK_EVERY).await;
                self.next = 0;
            }
            match self.storage.find_result(&self.ids[self.next]).await {
                Ok(Found::Unfinished) => self.next += 1,
                Ok(Found::Ended(result)) => {
                    self.ids.remove(self.next);
                    return Some((Ok(result), self));
                }
                Err(error) => {
                    if matches!(error, StorageError::Store(_)) {
                        self.next += 1;
                    } else {
                        self.ids.remove(self.next);
                    }
                    return Some((Err(error), self));
                }
            }
        }
        None
    }
}
