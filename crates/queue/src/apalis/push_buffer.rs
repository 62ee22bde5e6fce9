//! Tasks on their way to Redis.

use apalis_core::{backend::future::BoxSyncFuture, task::Task};
use serde_json::Value;

use super::error::StorageError;

/// Tasks that a sink has accepted and not yet written.
#[derive(Debug, Default)]
pub(super) struct PushBuffer {
    pub(super) waiting: Vec<Task<Value>>,
    pub(super) sending: Option<BoxSyncFuture<Result<(), StorageError>>>,
}
