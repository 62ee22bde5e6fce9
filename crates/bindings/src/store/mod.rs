//! Bindings as rows: read and written together with those of other jobs and requests of this process.
//!
//! * [`load`]: bindings with what decisions on them look at, many in one statement.
//! * [`write`]: changes of many bindings and what they tell people, in one commit, each on its own condition. The only code
//!   that writes to `bindings`. `values`: the rows it writes, table by table.
//! * `alerts`: what a desk is to clear up, raised and closed with the change.
//! * [`mirror`]: copies in Redis, for observers.
//! * [`servers`]: providers' servers, how they fare, and the limit of all calls.
//! * [`transactions`]: headers and records of calls, as people read them.

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

/// One batch at a time, but for a crowd or a slow one: most of a small batch is what the server does once for each.
const LOADS: BatchSize = BatchSize { most: 200, lanes: 2, crowd: 25 };
const WRITES: BatchSize = BatchSize { most: 100, lanes: 2, crowd: 25 };

/// Why a batch failed, for each of its items.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BatchError {
    #[error(transparent)]
    Database(Arc<sqlx::Error>),
    #[error(transparent)]
    Lost(#[from] BatchLost),
}

impl BatchError {
    /// Returns whether the item may have been written all the same.
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

/// Rows as a statement reads them.
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
    /// `routes`: over which channels people are told.
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

    /// The binding with all that decisions look at, and the time. `None`: there is none of this id.
    pub async fn load_binding(&self, id: &BindingId) -> LoadResult {
        self.loads.submit_item([id.clone()], id.clone()).await?
    }

    /// Writes a change, or nothing at all. A caller that goes away does not take its change back.
    pub async fn write_binding(&self, item: BindingWrite) -> WriteResult {
        let id = item.change.binding.id.clone();
        self.writes.submit_item([id], item).await?
    }
}
