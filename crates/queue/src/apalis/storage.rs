//! [`QueueStorage`], its constructors and settings.

use std::{fmt, marker::PhantomData, time::Duration};

use apalis_codec::json::JsonCodec;
use apalis_core::{
    backend::{BackendConfig, WireFormatBackend},
    task::task_id::TaskId,
    worker::context::WorkerContext,
};
use serde_json::Value;

use super::{
    checked::Checked, config::QueueConfig, error::StorageError, push_buffer::PushBuffer, run::StorageRun,
    settle_layer::SettleLayer,
};
use crate::{
    retry::RetryPolicy,
    shards::Shards,
    store::{Store, StoreError},
};

/// One queue as a backend of apalis, for tasks with arguments of type `Args`. Their JSON is stored.
///
/// Clones use the same queue and connection. A clone does not share the worker: each clone that is passed to a
/// `WorkerBuilder` leases tasks of its own. It needs a tokio runtime.
pub struct QueueStorage<Args> {
    pub(super) shards: Shards,
    pub(super) config: QueueConfig,
    pub(super) codec: JsonCodec<Value>,
    /// The engine's loops while a worker polls this storage.
    pub(super) run: Option<StorageRun>,
    pub(super) pushes: PushBuffer,
    args: PhantomData<fn() -> Args>,
}

impl<Args> QueueStorage<Args> {
    /// Creates a storage for a queue whose jobs the application can rebuild, as [`Store::begin_rebuild`] describes. A
    /// worker takes no tasks from an empty Redis until that is done.
    pub fn new(shards: impl Into<Shards>, queue: &'static str) -> Self {
        Self::with_config(shards.into(), QueueConfig::new(queue))
    }

    /// Connects to a Redis that is the only place of the tasks: see [`redis_only`](Self::redis_only).
    pub async fn connect(url: &str, queue: &'static str) -> Result<Self, StoreError> {
        let store = Store::connect(url).await?;
        let storage = Self::new(store, queue).redis_only();
        super::run::open_queue(&storage.shards).await?;
        Ok(storage)
    }

    fn with_config(shards: Shards, config: QueueConfig) -> Self {
        let codec = JsonCodec::default();
        Self { shards, config, codec, run: None, pushes: PushBuffer::default(), args: PhantomData }
    }

    /// Declares that Redis is the only place of the tasks. If Redis loses its data, the tasks are lost, and the worker
    /// continues with new ones.
    ///
    /// Do not use this in a Redis whose queues another application rebuilds from its database: the worker would mark the
    /// empty queues as complete.
    #[must_use]
    pub fn redis_only(mut self) -> Self {
        self.config.redis_only = true;
        self
    }

    /// Sets the maximum number of tasks that the worker has leased; 10 by default.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.config.concurrency = concurrency.max(1);
        self
    }

    /// Sets the delays between tries, and the number of tries of a task without `max_attempts`.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.config.retry = retry;
        self
    }

    /// Keeps the result of each task for this long, so that callers can wait for it. Without this, no result is stored.
    #[must_use]
    pub fn keep_results(mut self, time: Duration) -> Self {
        self.config.keep_results = Some(time);
        self
    }

    /// Returns the shards that have the queue, for calls that apalis has no trait for.
    pub fn shards(&self) -> &Shards {
        &self.shards
    }
}

impl<Args> Clone for QueueStorage<Args> {
    fn clone(&self) -> Self {
        Self::with_config(self.shards.clone(), self.config.clone())
    }
}

impl<Args> fmt::Debug for QueueStorage<Args> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueStorage")
            .field("shards", &self.shards)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl<Args> BackendConfig for QueueStorage<Args> {
    type Args = Args;
    type Id = TaskId;
    type Kind = Checked;
    type Config = QueueConfig;
    type Layer = SettleLayer;

    fn config(&self) -> &QueueConfig {
        &self.config
    }

    fn middleware(&mut self, _: &mut WorkerContext) -> SettleLayer {
        SettleLayer::new(self.shards.clone(), &self.config)
    }
}

impl<Args> WireFormatBackend for QueueStorage<Args> {
    type Codec = JsonCodec<Value>;
    type Compact = Value;

    fn codec(&self) -> &Self::Codec {
        &self.codec
    }
}

/// Error type of the traits, named once.
pub(super) type Stored<T> = Result<T, StorageError>;
