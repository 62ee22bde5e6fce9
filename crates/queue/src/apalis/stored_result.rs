//! Results of tasks, as stored.
//!
//! A result is a string with an expiry in Redis, apart from the queue. It is written before the lease ends, so each task
//! that is no longer in the queue has its result there until it expires. If the lease was lost meanwhile, the result
//! stays, and the next run replaces it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    job::{JobId, round_up_ms},
    shards::Shards,
    store::{Store, StoreError},
};

/// Result of a task that is done, as stored.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredResult {
    pub(super) attempt: usize,
    pub(super) response: Value,
}

impl StoredResult {
    pub(super) fn new(attempt: usize, response: &impl Serialize) -> serde_json::Result<Self> {
        Ok(Self { attempt, response: serde_json::to_value(response)? })
    }

    pub(super) async fn store(&self, shards: &Shards, id: &JobId, time: Duration) -> Result<(), StoreError> {
        let text = serde_json::to_string(self).map_err(|error| StoreError::invalid_answer("result", error))?;
        let store = home_of(shards, id);
        let mut set = redis::cmd("SET");
        set.arg(store.keys().result(id.as_str())).arg(text).arg("PX").arg(round_up_ms(time).max(1));
        store.run_command("result", &set).await
    }

    pub(super) async fn find(shards: &Shards, id: &JobId) -> Result<Option<String>, StoreError> {
        let store = home_of(shards, id);
        store.run_command("result", redis::cmd("GET").arg(store.keys().result(id.as_str()))).await
    }
}

fn home_of<'a>(shards: &'a Shards, id: &JobId) -> &'a Store {
    &shards.homes()[usize::from(shards.shard_of(id))]
}
