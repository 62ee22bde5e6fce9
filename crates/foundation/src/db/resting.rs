//! Connections that rest between two statements.
//!
//! sqlx asks each connection whether it is alive whenever it goes back to its pool: one more round trip for each statement. So one that
//! has answered all that it was asked stays here. The one that came last goes out first: few sessions are in use, and their plans are made.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sqlx::{Postgres, pool::PoolConnection};

/// One that nothing needed for so long goes back to sqlx's pool, which closes those that are too many.
const UNUSED: Duration = Duration::from_secs(60);
/// Once in so long each goes back to sqlx's pool, which closes sessions that are too old.
const LONGEST_OUT: Duration = Duration::from_secs(5 * 60);

/// A connection of sqlx's pool, and since when it is out of it.
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

/// Shared by the clones of one pool, and by its connections.
#[derive(Debug, Clone, Default)]
pub(super) struct RestingConnections(Arc<Mutex<Resting>>);

#[derive(Debug, Default)]
struct Resting {
    /// Each with the time it came. The last came last.
    connections: VecDeque<(HeldConnection, Instant)>,
    is_closed: bool,
}

impl RestingConnections {
    fn lock(&self) -> MutexGuard<'_, Resting> {
        self.0.lock()
    }

    /// Takes the one that came last, and says for how long it has rested.
    pub(super) fn take_latest(&self) -> Option<(HeldConnection, Duration)> {
        self.lock().connections.pop_back().map(|(held, since)| (held, since.elapsed()))
    }

    /// Keeps a connection, and returns one that is to go back to sqlx's pool, if there is one.
    pub(super) fn keep(&self, held: HeldConnection) -> Option<HeldConnection> {
        let mut resting = self.lock();
        if resting.is_closed || held.out_since.elapsed() > LONGEST_OUT {
            return Some(held);
        }
        resting.connections.push_back((held, Instant::now()));
        let is_unused = resting.connections.front().is_some_and(|(_, since)| since.elapsed() > UNUSED);
        if is_unused { resting.connections.pop_front().map(|(held, _)| held) } else { None }
    }

    /// From now on none is kept. Returns those that rest.
    pub(super) fn close(&self) -> Vec<HeldConnection> {
        let mut resting = self.lock();
        resting.is_closed = true;
        resting.connections.drain(..).map(|(held, _)| held).collect()
    }
}

impl Drop for Resting {
    /// What goes back to sqlx's pool needs a runtime, and there may be none any more. These sessions end with their sockets.
    fn drop(&mut self) {
        for (held, _) in self.connections.drain(..) {
            drop(held.connection.detach());
        }
    }
}
