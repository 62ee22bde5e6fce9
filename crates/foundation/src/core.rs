//! Shared resources of the capabilities: connections to both servers, clocks, randomness.

use std::{ops::Deref, sync::Arc, time::Duration};

use model::{chance::Rng, clock::Clock};
use redis::FromRedisValue;
use tokio_util::task::TaskTracker;

use crate::{
    config::database::DatabaseConfig,
    db::{self, Pool, readiness::PostgresReadiness},
    loops::LoopRegistry,
    shard_map::QueueShards,
    system::{DatabaseClock, SystemClock, SystemRng},
};
use queue::{Shards, Store};

const HINT_TIMEOUT: Duration = Duration::from_millis(50);

/// Connections, clocks and randomness that the capabilities share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Core(Arc<CoreParts>);

#[derive(Debug, Clone)]
pub struct CoreParts {
    /// Connections to Postgres for requests.
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
    /// The control shard, and the Redis keys that are not jobs. Jobs use [`Core::queue`].
    pub store: Store,
    pub shards: QueueShards,
    /// Tasks that continue after their request was answered. A stopping process waits for them.
    pub behind_answers: TaskTracker,
    /// Clock of this machine. Deadlines use the clock of Postgres.
    pub clock: Arc<dyn Clock>,
    /// Clock of Postgres, as estimated by this process.
    pub database_clock: DatabaseClock,
    /// Source of the jitter in pauses.
    pub rng: Arc<dyn Rng>,
    /// Timeout for a Redis query that Postgres can answer too.
    pub patience: Duration,
}

impl Core {
    /// Creates the pools for batches, upkeep, reads and pages from `db`. Opens no connection.
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

    pub fn queue(&self) -> Shards {
        self.shards.get()
    }

    /// Runs an optional command on Redis. Returns an error after [`CoreParts::patience`].
    pub async fn query_optional<T: FromRedisValue>(
        &self,
        name: &'static str,
        command: &impl queue::RedisCall,
    ) -> Result<T, String> {
        match tokio::time::timeout(self.patience, self.store.run_command(name, command)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("Redis took longer than {:?}", self.patience)),
        }
    }

    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut CoreParts)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Closes all connections to Postgres and waits until they are closed.
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
