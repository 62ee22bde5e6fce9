//! Rows of bindings. Reads and writes of concurrent jobs and requests of this process are batched.
//!
//! * [`load`]: reads bindings with everything that decisions need, many in one statement.
//! * [`write`]: writes changes of many bindings with their messages in one commit, each with its own version check.
//!   Only this code writes to `bindings`. `values`: the rows that it writes, by table.
//! * `alerts`: alerts that are raised and closed together with the change.
//! * [`mirror`]: copies in Redis for observers.
//! * [`servers`]: providers' servers, their breaker state, and the limit of all calls.
//! * [`transactions`]: headers of transactions and records of calls.

mod alerts;
pub mod load;
pub mod mirror;
pub mod servers;
pub mod transactions;
mod values;
pub mod write;

use std::sync::Arc;

use jobs::BindingId;
use model::messages::ChannelRoutes;

use self::{
    load::LoadedBinding,
    write::{BindingWrite, WriteVerdict},
};
use foundation::{
    batch::{BatchLost, BatchQueue, BatchSize},
    db::{DatabaseFailure, Pool, classify_error},
};

/// A second batch starts only when many items wait or the first is slow. Most of the cost of a small batch is fixed.
const LOADS: BatchSize = BatchSize { most: 200, lanes: 2, crowd: 25 };
const WRITES: BatchSize = BatchSize { most: 100, lanes: 2, crowd: 25 };

/// Reason that a batch failed, for each of its items.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BatchError {
    #[error(transparent)]
    Database(Arc<sqlx::Error>),
    #[error(transparent)]
    Lost(#[from] BatchLost),
}

impl BatchError {
    /// Returns whether the item may have been written.
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::Database(error) => classify_error(error) == DatabaseFailure::OutcomeUnknown,
            Self::Lost(_) => true,
        }
    }
}

impl From<sqlx::Error> for BatchError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(Arc::new(error))
    }
}

/// Encodes rows as JSON for a statement.
fn json_of(values: &impl serde::Serialize) -> Result<String, sqlx::Error> {
    serde_json::to_string(values).map_err(|error| sqlx::Error::Encode(error.into()))
}

type LoadResult = Result<Option<LoadedBinding>, BatchError>;
type WriteResult = Result<WriteVerdict, BatchError>;

/// Reads and writes bindings. Cheap to clone.
#[derive(Debug, Clone)]
pub struct BindingStore {
    loads: BatchQueue<BindingId, BindingId, LoadResult>,
    writes: BatchQueue<BindingId, BindingWrite, WriteResult>,
}

impl BindingStore {
    /// Creates the store. `routes` are the channels of messages to people.
    pub fn new(db: &Pool, routes: &ChannelRoutes) -> Self {
        let (db_of_loads, db_of_writes) = (db.clone(), db.clone());
        let routes = Arc::new(routes.clone());
        Self {
            loads: BatchQueue::new("load bindings", LOADS, move |ids: Vec<BindingId>| {
                let db = db_of_loads.clone();
                async move { load::load_all(&db, &ids).await }
            }),
            writes: BatchQueue::new("write bindings", WRITES, move |items: Vec<BindingWrite>| {
                let (db, routes) = (db_of_writes.clone(), routes.clone());
                async move { write::write_all(&db, &routes, items).await }
            }),
        }
    }

    /// Returns the binding with everything that decisions need, including the current time. Returns `None` if the
    /// binding does not exist.
    pub async fn load_binding(&self, id: &BindingId) -> LoadResult {
        self.loads.submit_item([id.clone()], id.clone()).await?
    }

    /// Writes a change, either completely or not at all. Dropping the future does not cancel the write.
    pub async fn write_binding(&self, item: BindingWrite) -> WriteResult {
        let id = item.change.binding.id.clone();
        self.writes.submit_item([id], item).await?
    }
}
