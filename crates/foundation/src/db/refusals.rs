//! Replacement of connections to a server that refused a write.
//!
//! A connection that started while the server was read-only may refuse writes for its whole lifetime, so it is
//! replaced. While no connection accepts writes, replacing all of them would only cost time, especially when the server
//! recovers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};

/// Successful checks per connection that end the suspicion, without a failed check in between. After a refused write,
/// each returned connection is checked for write access. Four checks per connection make it likely that every
/// connection is checked.
const ASKED_PER_CONNECTION: usize = 4;
/// Interval at which one connection is replaced while none accepts writes, to find out whether a new one does.
const REPLACED_EVERY: Duration = Duration::from_secs(1);

/// State that the connections of one pool share.
#[derive(Debug, Clone)]
pub(super) struct WriteRefusals {
    suspicion: Arc<Mutex<Suspicion>>,
    /// Maximum connections of the pool.
    connections: usize,
}

#[derive(Debug, Default)]
struct Suspicion {
    /// Remaining checks. 0 if no write was refused recently.
    to_ask: usize,
    /// Time at which a check last found write access.
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

    /// Records a refused write, or a session that would refuse one.
    pub(super) fn record(&self) {
        self.lock().to_ask = ASKED_PER_CONNECTION * self.connections;
    }

    pub(super) fn are_recent(&self) -> bool {
        self.lock().to_ask > 0
    }

    /// Returns whether to keep a connection after its check.
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
