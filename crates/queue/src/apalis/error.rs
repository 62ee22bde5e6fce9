//! Errors of the storage's calls.

use apalis_core::task::task_id::TaskId;

use crate::{job::InvalidJobId, store::StoreError};

/// Error of a call of [`QueueStorage`](super::QueueStorage). A running worker never receives one, because an error of
/// the backend would end it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StorageError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the task's id or its queue cannot be a job id: {0}")]
    Id(#[from] InvalidJobId),
    #[error("task {0} has an id and an idempotency key; give one of them, because the id makes a push idempotent")]
    IdAndKey(TaskId),
    #[error("the task names the queue '{task}', but this storage writes to '{storage}'")]
    OtherQueue { task: String, storage: &'static str },
    #[error("task {0} is dead and was not pushed; requeue it with `reschedule`, or discard it with `vacuum`")]
    Dead(TaskId),
    #[error("task {0} waits in line for slots and cannot be rescheduled")]
    Parked(TaskId),
    #[error("the task has no id, so it cannot be found in the queue")]
    NoId,
    #[error(
        "task {0} is unknown: it was not pushed, or it is done and its result was not kept; see QueueStorage::keep_results"
    )]
    Unknown(TaskId),
    #[error("the result of task {id} cannot be decoded: {reason}")]
    Result { id: TaskId, reason: String },
}
