//! What is known of a server that refused a write.
//!
//! A connection that began while the server took no writes may refuse them for as long as it lives, so it is replaced. While no
//! connection takes writes, replacing all of them would only cost time, most of all when the server is back.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};

/// After a write was refused, connections are asked before they go back whether they take writes, until so many in a row, for
/// each there may be, said that they do: connections take turns.
const ASKED_PER_CONNECTION: usize = 4;
/// While no connection takes writes, so often one is replaced, to find out whether a new one does.
const REPLACED_EVERY: Duration = Duration::from_secs(1);

/// Shared by the connections of one pool.
#[derive(Debug, Clone)]
pub(super) struct WriteRefusals {
    suspicion: Arc<Mutex<Suspicion>>,
    /// How many connections the pool may have.
    connections: usize,
}

#[derive(Debug, Default)]
struct Suspicion {
    /// So many answers are yet to be had; 0: no write was refused lately.
    to_ask: usize,
    /// When a connection last said that it takes writes.
    accepted: Option<Instant>,
    replaced: Option<Instant>,
}

fn is_recent(at: Option<Instant>) -> bool {
    at.is_some_and(|at| at.elapsed() < REPLACED_EVERY)
}

impl WriteRefusals {
    pub(super) fn new(connections: usize) -> Self {
        Self { suspicion: Arc::default(), connections }
    }

    fn lock(&self) -> MutexGuard<'_, Suspicion> {
        self.suspicion.lock()
    }

    /// Records that a write was refused, or would have been.
    pub(super) fn record(&self) {
        self.lock().to_ask = ASKED_PER_CONNECTION * self.connections;
    }

    pub(super) fn are_recent(&self) -> bool {
        self.lock().to_ask > 0
    }

    /// Returns whether a connection is to be kept that takes writes, or takes none.
    pub(super) fn keeps(&self, takes_writes: bool) -> bool {
        let mut suspicion = self.lock();
        if takes_writes {
            suspicion.to_ask = suspicion.to_ask.saturating_sub(1);
            suspicion.accepted = Some(Instant::now());
            return true;
        }
        suspicion.to_ask = ASKED_PER_CONNECTION * self.connections;
        if is_recent(suspicion.replaced) && !is_recent(suspicion.accepted) {
            return true;
        }
        suspicion.replaced = Some(Instant::now());
        false
    }
}
