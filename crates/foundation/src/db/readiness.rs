//! Nothing is taken while Postgres takes no writes: a job that cannot write its row can only wait, and waits better in the
//! queue.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{db::Pool, loops::LoopRegistry};
use queue::Gate;

const EVERY: Duration = Duration::from_secs(1);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// An answer this old answers again. Less than [`EVERY`], so that the watch always asks.
const FRESH: Duration = Duration::from_millis(500);

/// What Postgres last said of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum PostgresState {
    #[strum(serialize = "ok")]
    Writable,
    /// A standby, or a server that is about to go: it answers and refuses every change.
    ReadOnly,
    Unreachable,
}

impl PostgresState {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Whether Postgres takes writes. One question at a time and at most two a second, however many want to know; on a connection
/// that neither requests nor jobs can use up. Clones share the answer.
#[derive(Debug, Clone)]
pub struct PostgresReadiness {
    upkeep: Pool,
    last: Arc<Mutex<Option<(Instant, PostgresState)>>>,
}

impl PostgresReadiness {
    /// Asks over these connections: see [`db::upkeep_pool`](crate::db::upkeep_pool).
    pub fn new(upkeep: Pool) -> Self {
        Self { upkeep, last: Arc::default() }
    }

    /// Returns the latest answer, or a new one when that is old.
    pub async fn postgres_state(&self) -> PostgresState {
        let mut last = self.last.lock().await;
        if let Some((_, answer)) = last.filter(|(at, _)| at.elapsed() < FRESH) {
            return answer;
        }
        let answer = ask_postgres(&self.upkeep).await;
        *last = Some((Instant::now(), answer));
        answer
    }

    /// Returns whether a change could be written now.
    pub async fn is_writable(&self) -> bool {
        self.postgres_state().await == PostgresState::Writable
    }
}

/// Asks over a connection of this pool.
pub async fn ask_postgres(pool: &Pool) -> PostgresState {
    let question = sqlx::query_scalar(
        "-- takes writes
         SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'",
    )
    .fetch_one(pool);
    match tokio::time::timeout(ANSWER_TIMEOUT, question).await {
        Ok(Ok(true)) => PostgresState::Writable,
        Ok(Ok(false)) => {
            // This session may have begun while the server took no writes, or at a standby.
            pool.suspect_read_only();
            PostgresState::ReadOnly
        }
        Ok(Err(_)) | Err(_) => PostgresState::Unreachable,
    }
}

/// Opens and closes the gate by asking Postgres once a second.
pub async fn watch_gate(readiness: PostgresReadiness, gate: Gate, loops: LoopRegistry, stop: CancellationToken) {
    let turns = loops.register_loop("gate");
    let mut said = PostgresState::Writable;
    while !stop.is_cancelled() {
        let postgres = turns.run_turn(readiness.postgres_state()).await.unwrap_or(PostgresState::Unreachable);
        let has_turned = gate.set_open(postgres == PostgresState::Writable);
        // A gate that stays closed may do so for another reason now, and people mend the one that the log names.
        let has_changed = std::mem::replace(&mut said, postgres) != postgres;
        if has_turned || has_changed {
            match postgres {
                PostgresState::Writable => tracing::info!("Postgres takes writes; jobs are taken."),
                PostgresState::ReadOnly => {
                    tracing::warn!("Postgres is read-only; no job is taken until it takes writes.");
                }
                PostgresState::Unreachable => {
                    tracing::warn!("Postgres does not answer; no job is taken until it does.");
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}
