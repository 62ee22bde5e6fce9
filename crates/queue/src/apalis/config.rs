//! Settings of a [`QueueStorage`](super::QueueStorage).

use std::time::Duration;

use crate::retry::RetryPolicy;

/// Settings of a storage. [`QueueStorage`](super::QueueStorage) has a method for each of them.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueConfig {
    /// Name of the queue, of letters, digits, `_`, `-` and `.`. It is also the kind of its jobs.
    pub queue: &'static str,
    /// Maximum number of tasks that a worker has leased.
    pub concurrency: usize,
    /// Delays between tries, and the number of tries of a task that does not set `max_attempts`.
    pub retry: RetryPolicy,
    /// How long the result of a task is kept after its run. `None`: not at all.
    pub keep_results: Option<Duration>,
    /// Whether Redis is the only place that has the tasks. An empty Redis is then a new queue, and a worker takes tasks
    /// from it. Otherwise the application rebuilds the queue, and workers wait for it.
    pub redis_only: bool,
}

impl QueueConfig {
    pub(super) fn new(queue: &'static str) -> Self {
        Self { queue, concurrency: 10, retry: RetryPolicy::DEFAULT, keep_results: None, redis_only: false }
    }
}
