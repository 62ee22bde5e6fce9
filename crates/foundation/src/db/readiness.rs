//! Whether Postgres accepts writes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

use crate::db::Pool;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum age of a cached state. Shorter than the interval of the worker's gate, so the gate always sends a query.
const FRESH: Duration = Duration::from_millis(500);

/// Last observed state of Postgres.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum PostgresState {
    #[strum(serialize = "ok")]
    Writable,
    /// A standby, or a server that is shutting down: it answers queries and refuses every change.
    ReadOnly,
    Unreachable,
}

impl PostgresState {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Cached state of Postgres. It runs one query at a time and at most two per second, for any number of callers. The
/// queries use a connection that requests and jobs do not use. Clones share the state.
#[derive(Debug, Clone)]
pub struct PostgresReadiness {
    upkeep: Pool,
    last: Arc<Mutex<Option<(Instant, PostgresState)>>>,
}

impl PostgresReadiness {
    /// Creates the cache. Its queries use `upkeep`, see [`db::upkeep_pool`](crate::db::upkeep_pool).
    pub fn new(upkeep: Pool) -> Self {
        Self { upkeep, last: Arc::default() }
    }

    /// Returns the cached state, or queries Postgres if the state is outdated.
    pub async fn postgres_state(&self) -> PostgresState {
        let mut last = self.last.lock().await;
        if let Some((_, answer)) = last.filter(|(at, _)| at.elapsed() < FRESH) {
            return answer;
        }
        let answer = ask_postgres(&self.upkeep).await;
        *last = Some((Instant::now(), answer));
        answer
    }

    pub async fn is_writable(&self) -> bool {
        self.postgres_state().await == PostgresState::Writable
    }
}

/// Queries Postgres for its state on a connection of this pool.
pub async fn ask_postgres(pool: &Pool) -> PostgresState {
    let question = sqlx::query_scalar(
        "-- takes writes
         SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'",
    )
    .fetch_one(pool);
    match tokio::time::timeout(ANSWER_TIMEOUT, question).await {
        Ok(Ok(true)) => PostgresState::Writable,
        Ok(Ok(false)) => {
            // The session may have started while the server was read-only, or on a standby.
            pool.suspect_read_only();
            PostgresState::ReadOnly
        }
        Ok(Err(_)) | Err(_) => PostgresState::Unreachable,
    }
}
