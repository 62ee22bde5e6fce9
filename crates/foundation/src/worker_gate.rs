//! Workers take no jobs while Postgres accepts no writes, and while an operator drains them. A job that cannot write its
//! row can only wait, so it waits in the queue.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::{core::Core, db::readiness::PostgresState, worker_drains};
use queue::Gate;

const EVERY: Duration = Duration::from_secs(1);
/// Timeout for reading the request to drain this process. After it, the last answer applies for another turn.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// State that decides whether the gate is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GateState {
    postgres: PostgresState,
    /// Time in ms of the request to drain this worker, if there is one.
    drain_ms: Option<u64>,
    /// Whether the request was read in this turn. Otherwise it is that of an earlier turn.
    knows_drain: bool,
}

impl GateState {
    /// Returns whether the gate was opened or closed.
    fn apply(self, gate: &Gate) -> bool {
        match self.drain_ms {
            Some(requested_ms) => gate.drain(requested_ms),
            None => gate.set_open(self.postgres == PostgresState::Writable),
        }
    }
}

/// Opens or closes the gate of the worker with this id once a second.
pub async fn watch_gate(core: Core, boot: String, gate: Gate, stop: CancellationToken) {
    let turns = core.loops.register_loop("gate");
    let mut said = GateState { postgres: PostgresState::Writable, drain_ms: None, knows_drain: true };
    while !stop.is_cancelled() {
        let unanswered = GateState { postgres: PostgresState::Unreachable, ..said };
        let now = turns.run_turn(read_state(&core, &boot, said)).await.unwrap_or(unanswered);
        let has_turned = now.apply(&gate);
        // The reason may change while the gate stays closed. It is logged, because operators fix the cause that the log
        // names.
        let has_changed = std::mem::replace(&mut said, now) != now;
        if has_turned || has_changed {
            log_state(now);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Reads the state. While Postgres does not answer, the last known request to drain applies.
async fn read_state(core: &Core, boot: &str, last: GateState) -> GateState {
    let postgres = core.readiness.postgres_state().await;
    if postgres != PostgresState::Writable {
        return GateState { postgres, ..last };
    }
    let request = tokio::time::timeout(ANSWER_TIMEOUT, worker_drains::read_request(&core.upkeep, boot)).await;
    let read = request.ok().and_then(Result::ok);
    GateState { postgres, drain_ms: read.unwrap_or(last.drain_ms), knows_drain: read.is_some() }
}

fn log_state(state: GateState) {
    match state.postgres {
        PostgresState::ReadOnly => tracing::warn!("Postgres is read-only; no job is taken until it takes writes."),
        PostgresState::Unreachable => tracing::warn!("Postgres does not answer; no job is taken until it does."),
        PostgresState::Writable if !state.knows_drain => {
            tracing::warn!(
                "The request to drain this worker could not be read; that of the last successful read applies."
            );
        }
        PostgresState::Writable if state.drain_ms.is_some() => {
            tracing::info!("An operator drains this worker; it takes no job until it is resumed.");
        }
        PostgresState::Writable => tracing::info!("Postgres takes writes; jobs are taken."),
    }
}
