//! Idle connections between two statements.
//!
//! sqlx pings each connection that is returned to its pool, which adds a round trip to each statement. Connections
//! without a pending response are therefore kept here. The most recently used one is taken first, so few sessions are
//! active and their plans are cached.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sqlx::{Postgres, pool::PoolConnection};

/// Idle time after which a connection is returned to sqlx's pool, which closes surplus ones.
const UNUSED: Duration = Duration::from_secs(60);
/// Maximum time outside of sqlx's pool. sqlx closes sessions that are too old when they are returned.
const LONGEST_OUT: Duration = Duration::from_secs(5 * 60);

/// Connection of sqlx's pool, and the time at which it was taken.
#[derive(Debug)]
pub(super) struct HeldConnection {
    pub(super) connection: PoolConnection<Postgres>,
    out_since: Instant,
}

impl HeldConnection {
    pub(super) fn new(connection: PoolConnection<Postgres>) -> Self {
        Self { connection, out_since: Instant::now() }
    }
}

/// Idle connections, shared by the clones of one pool and by its connections.
#[derive(Debug, Clone, Default)]
pub(super) struct RestingConnections(Arc<Mutex<Resting>>);

#[derive(Debug, Default)]
struct Resting {
    /// Connections with the times of their return, the most recent last.
    connections: VecDeque<(HeldConnection, Instant)>,
    is_closed: bool,
}

impl RestingConnections {
    fn lock(&self) -> MutexGuard<'_, Resting> {
        self.0.lock()
    }

    /// Takes the most recently used connection, and returns its idle time.
    pub(super) fn take_latest(&self) -> Option<(HeldConnection, Duration)> {
        self.lock().connections.pop_back().map(|(held, since)| (held, since.elapsed()))
    }

    /// Keeps a connection. Returns a connection that must go back to sqlx's pool, if any.
    pub(super) fn keep(&self, held: HeldConnection) -> Option<HeldConnection> {
        let mut resting = self.lock();
        if resting.is_closed || held.out_since.elapsed() > LONGEST_OUT {
            return Some(held);
        }
        resting.connections.push_back((held, Instant::now()));
        let is_unused = resting.connections.front().is_some_and(|(_, since)| since.elapsed() > UNUSED);
        if is_unused { resting.connections.pop_front().map(|(held, _)| held) } else { None }
    }

    /// Stops keeping connections, and returns those that are idle.
    pub(super) fn close(&self) -> Vec<HeldConnection> {
        let mut resting = self.lock();
        resting.is_closed = true;
        resting.connections.drain(..).map(|(held, _)| held).collect()
    }
}

impl Drop for Resting {
    /// Returning connections to sqlx's pool needs a runtime, which may have ended. Detached sessions end when their
    /// sockets close.
    fn drop(&mut self) {
        for (held, _) in self.connections.drain(..) {
            drop(held.connection.detach());
        }
    }
}
