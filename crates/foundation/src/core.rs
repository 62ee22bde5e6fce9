//! What every capability works with: connections to both servers, the clock, randomness.

use std::{ops::Deref, sync::Arc, time::Duration};

use model::{chance::Rng, clock::Clock};
use redis::{Cmd, FromRedisValue};
use tokio_util::task::TaskTracker;

use crate::{
    config::database::DatabaseConfig,
    db::{self, Pool, readiness::PostgresReadiness},
    loops::LoopRegistry,
    shard_map::QueueShards,
    system::{DatabaseClock, SystemClock, SystemRng},
};
use queue::{Shards, Store};

/// See [`CoreParts::patience`].
const HINT_TIMEOUT: Duration = Duration::from_millis(50);

/// The connections, the clock and the randomness that the capabilities share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Core(Arc<CoreParts>);

/// What a [`Core`] holds.
#[derive(Debug, Clone)]
pub struct CoreParts {
    /// Requests use these connections to Postgres.
    pub db: Pool,
    /// See [`db::batch_pool`].
    pub batches: Pool,
    /// See [`db::upkeep_pool`].
    pub upkeep: Pool,
    /// See [`db::read_only_pool`].
    pub read_only: Pool,
    /// See [`db::page_pool`].
    pub pages: Pool,
    pub readiness: PostgresReadiness,
    pub loops: LoopRegistry,
    /// The control shard, and the keys in Redis that are not jobs. Jobs go through [`Core::queue`].
    pub store: Store,
    pub shards: QueueShards,
    /// Work that continues after its request was answered. A process that ends waits for it.
    pub behind_answers: TaskTracker,
    /// This machine's clock. Deadlines follow the clock of Postgres.
    pub clock: Arc<dyn Clock>,
    /// The clock of Postgres, as far as this process knows it.
    pub database_clock: DatabaseClock,
    /// The source of the jitter of pauses.
    pub rng: Arc<dyn Rng>,
    /// How long Redis may take to answer a question that Postgres can answer too.
    pub patience: Duration,
}

impl Core {
    /// Makes the pools for batches, upkeep, reads and pages from `db`. Opens no connection.
    pub fn new(db: Pool, store: Store, database: &DatabaseConfig) -> Self {
        let upkeep = db::upkeep_pool(&db);
        Self(Arc::new(CoreParts {
            batches: db::batch_pool(&db, database),
            readiness: PostgresReadiness::new(upkeep.clone()),
            upkeep,
            read_only: db::read_only_pool(&db),
            pages: db::page_pool(&db),
            db,
            loops: LoopRegistry::default(),
            shards: QueueShards::new(&store),
            store,
            behind_answers: TaskTracker::new(),
            clock: Arc::new(SystemClock),
            database_clock: DatabaseClock::default(),
            rng: Arc::new(SystemRng),
            patience: HINT_TIMEOUT,
        }))
    }

    /// Returns all shards of the queue.
    pub fn queue(&self) -> Shards {
        self.shards.get()
    }

    /// Runs an optional command on Redis. Returns an error after [`CoreParts::patience`].
    pub async fn query_optional<T: FromRedisValue>(&self, name: &'static str, command: &Cmd) -> Result<T, String> {
        match tokio::time::timeout(self.patience, self.store.run_command(name, command)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("Redis took longer than {:?}", self.patience)),
        }
    }

    /// Returns a copy with other parts.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut CoreParts)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Returns when every connection to Postgres is closed.
    pub async fn close(&self) {
        for pool in [&self.db, &self.batches, &self.upkeep, &self.read_only, &self.pages] {
            pool.close().await;
        }
    }
}

impl Deref for Core {
    type Target = CoreParts;

    fn deref(&self) -> &CoreParts {
        &self.0
    }
}
