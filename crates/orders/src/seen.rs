//! An order that this process read a moment ago.
//!
//! A partner's response is decided on the order as it was read before the call. The change is written on condition that
//! the row is unchanged, which is the usual case. Otherwise the order is read again. A call thus costs one load instead
//! of two.
//!
//! The decision uses Postgres' time of that read. After a slow response the order is read again.

use std::time::{Duration, Instant};

use model::order::Snapshot;

/// Maximum age of a snapshot used for a decision.
const MOST_BEHIND: Duration = Duration::from_secs(1);

/// An order and the time of its read.
#[derive(Debug, Clone)]
pub struct SeenOrder {
    snapshot: Snapshot,
    read_at: Instant,
}

impl SeenOrder {
    /// Wraps an order that has just been read.
    pub fn new(snapshot: Snapshot) -> Self {
        Self { snapshot, read_at: Instant::now() }
    }

    /// Wraps an order whose read was started at `read_at`.
    pub(crate) fn asked_at(snapshot: Snapshot, read_at: Instant) -> Self {
        Self { snapshot, read_at }
    }

    /// Returns the order after a change that was decided on this read. The time of the read is kept.
    #[must_use]
    pub fn changed_to(self, after: Snapshot) -> Self {
        Self { snapshot: after, ..self }
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    pub fn into_snapshot(self) -> Snapshot {
        self.snapshot
    }

    /// Returns the order like [`recent`](Self::recent), without a copy.
    pub fn into_recent(self) -> Option<Snapshot> {
        (self.read_at.elapsed() < MOST_BEHIND).then_some(self.snapshot)
    }

    /// Returns the order unless it was read too long ago to decide on.
    pub fn recent(&self) -> Option<Snapshot> {
        (self.read_at.elapsed() < MOST_BEHIND).then(|| self.snapshot.clone())
    }
}

#[cfg(test)]
mod tests {
    use model::order::order::fixture;

    use super::*;

    #[test]
    fn snapshot_expires_after_maximum_age() {
        let read = fixture::created_snapshot();
        let mut seen = SeenOrder::new(read.clone());
        assert_eq!(seen.recent(), Some(read.clone()));
        seen.read_at -= MOST_BEHIND;
        assert_eq!(seen.recent(), None);
        assert_eq!(seen.changed_to(read).recent(), None, "a change does not renew the read");
    }
}
