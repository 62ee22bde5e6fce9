//! Tasks as jobs, and jobs as tasks.

use std::{collections::HashMap, time::Duration};

use apalis_core::{
    backend::queue::Queue,
    task::{Task, builder::TaskBuilder, metadata::MetadataStore, status::Status},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    error::StorageError,
    settle_layer::Delivered,
    task_id::{job_of, new_id, task_of},
};
use crate::{
    job::{DecodeError, JobId, NewJob},
    store::{JobDetail, JobState},
    supervisor::{ResultSender, TicketedJob},
};

/// Delay of a task, to the millisecond of Redis' clock: `TaskBuilder::new(args).data(RunAfter(delay))`.
///
/// The times that apalis' own methods set are whole seconds of the producer's clock. A task with such a time is never
/// early by Redis' clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAfter(pub Duration);

/// Payload of a task's job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TaskPayload {
    args: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_attempts: Option<usize>,
    #[serde(default, skip_serializing_if = "HashMap::is_empty")]
    meta: HashMap<String, String>,
}

impl TaskPayload {
    /// Reads the payload of a job. The payload of a job that another program enqueued is its arguments.
    fn read(queue: &str, id: &JobId, payload: Option<Value>) -> Result<Self, DecodeError> {
        let payload = payload.unwrap_or_default();
        if id.kind() == queue {
            serde_json::from_value(payload).map_err(|error| DecodeError::new(id, error))
        } else {
            Ok(Self { args: payload, max_attempts: None, meta: HashMap::new() })
        }
    }

    fn builder(self, queue: &str, id: &JobId) -> TaskBuilder<Value> {
        let mut task = TaskBuilder::new(self.args)
            .task_id(task_of(queue, id))
            .queue(Queue::from(queue))
            .with_metadata(MetadataStore::from_map(self.meta));
        if let Some(most) = self.max_attempts {
            task = task.max_attempts(most);
        }
        task
    }
}

/// Returns the job of a task to push. `now_ms` is a time of Redis' clock that is not in the future.
pub(super) fn job_to_push(queue: &'static str, task: &Task<Value>, now_ms: u64) -> Result<NewJob, StorageError> {
    if let Some(other) = task.queue().filter(|named| named.as_ref() != queue) {
        return Err(StorageError::OtherQueue { task: other.to_string(), storage: queue });
    }
    let id = match (task.task_id(), task.idempotency_key()) {
        (Some(id), Some(_)) => return Err(StorageError::IdAndKey(id.clone())),
        (Some(id), None) => job_of(queue, &id.to_string())?,
        (None, Some(key)) => job_of(queue, key)?,
        (None, None) => job_of(queue, &new_id())?,
    };
    let due_ms = task.run_at().map(|secs| secs.saturating_mul(1000));
    let delay = match task.data().get::<RunAfter>() {
        Some(RunAfter(delay)) => *delay,
        None => Duration::from_millis(due_ms.map_or(0, |due_ms| due_ms.saturating_sub(now_ms))),
    };
    job_with_delay(queue, id, task, delay)
}

pub(super) fn job_with_delay(
    queue: &'static str,
    id: JobId,
    task: &Task<Value>,
    delay: Duration,
) -> Result<NewJob, StorageError> {
    let payload = if id.kind() == queue {
        let meta = task.metadata().as_map().clone();
        let payload = TaskPayload { args: task.args.clone(), max_attempts: task.max_attempts(), meta };
        serde_json::to_value(payload).ok()
    } else {
        Some(task.args.clone()).filter(|args| !args.is_null())
    };
    Ok(NewJob { queue, id, delay, payload, slots: None })
}

/// Returns the task of a leased job. A job that cannot be read is returned, with the reason.
pub(super) fn task_to_run(
    mut work: TicketedJob,
    worker: &str,
    results: &ResultSender,
) -> Result<Task<Value>, Box<(TicketedJob, DecodeError)>> {
    let delivery = &mut work.leased.delivery;
    let (queue, id, payload) = (delivery.queue, delivery.id.clone(), delivery.payload.take());
    let payload = match TaskPayload::read(queue, &id, payload) {
        Ok(payload) => payload,
        Err(error) => return Err(Box::new((work, error))),
    };
    let delivery = work.leased.delivery.clone();
    let leased_secs = delivery.due_ms.saturating_add(delivery.lateness_ms) / 1000;
    let task = payload
        .builder(queue, &id)
        .status(Status::Queued)
        .attempt(delivery.failed as usize)
        .run_at_timestamp(delivery.due_ms / 1000)
        .lock_at(Some(leased_secs))
        .lock_by(Some(worker.to_owned()))
        .data(delivery)
        .data(Delivered { work, results: results.clone() });
    Ok(task.build())
}

/// Returns the task of a job that was found in the queue. `args` are null if the payload cannot be read.
pub(super) fn found_task(found: &JobDetail) -> Option<Task<Value>> {
    let id = JobId::parse(found.id.clone()).ok()?;
    let payload = envelope_of(found).and_then(|mut envelope| envelope.get_mut("payload").map(Value::take));
    let unreadable = |_| TaskPayload { args: Value::Null, max_attempts: None, meta: HashMap::new() };
    let task = TaskPayload::read(&found.queue, &id, payload).unwrap_or_else(unreadable).builder(&found.queue, &id);
    let (failed, due_ms) = match &found.dead {
        Some(dead) => (dead.failed, dead.due_ms),
        None => (found.failed, found.leased_due_ms.unwrap_or(found.at_ms)),
    };
    let task = task.attempt(failed as usize).run_at_timestamp(due_ms / 1000).status(status_of(found.state));
    let died_secs = found.dead.as_ref().map(|dead| dead.died_ms / 1000);
    Some(task.done_at(died_secs).build())
}

fn envelope_of(found: &JobDetail) -> Option<Value> {
    match &found.dead {
        Some(dead) => Some(dead.payload.clone()),
        None => serde_json::from_str(found.envelope.as_deref()?).ok(),
    }
}

/// Returns the status of a job's task. A job that is done is no longer in the queue.
pub(super) fn status_of(state: JobState) -> Status {
    match state {
        JobState::Due | JobState::Suspect | JobState::Parked => Status::Pending,
        JobState::Leased => Status::Running,
        JobState::Dead => Status::Failed,
    }
}
