//! An order as this process read it a moment ago.
//!
//! What a partner answers is decided on the order as it was before the partner was asked: the change is written on the condition that
//! it is still so, and most often it is. Otherwise the order is read again. So a question costs one load and not two.
//!
//! Such a decision is made at the time of the reading, by Postgres' clock. After an answer that took long the order is read again.

use std::time::{Duration, Instant};

use model::order::Snapshot;

/// So far behind may the time of a decision be.
const MOST_BEHIND: Duration = Duration::from_secs(1);

/// An order, and when it was read.
#[derive(Debug, Clone)]
pub struct SeenOrder {
    snapshot: Snapshot,
    read_at: Instant,
}

impl SeenOrder {
    /// An order that has just been read.
    pub fn new(snapshot: Snapshot) -> Self {
        Self { snapshot, read_at: Instant::now() }
    }

    /// An order that was asked for at this time.
    pub(crate) fn asked_at(snapshot: Snapshot, read_at: Instant) -> Self {
        Self { snapshot, read_at }
    }

    /// The order as a change has left it that was decided on what was read.
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

    /// As [`recent`](Self::recent).
    pub fn into_recent(self) -> Option<Snapshot> {
        (self.read_at.elapsed() < MOST_BEHIND).then_some(self.snapshot)
    }

    /// The order, unless it was read too long ago to decide on.
    pub fn recent(&self) -> Option<Snapshot> {
        (self.read_at.elapsed() < MOST_BEHIND).then(|| self.snapshot.clone())
    }
}

#[cfg(test)]
mod tests {
    use model::order::order::fixture;

    use super::*;

    #[test]
    fn recent_reading_is_used_for_a_moment() {
        let read = fixture::created_snapshot();
        let mut seen = SeenOrder::new(read.clone());
        assert_eq!(seen.recent(), Some(read.clone()));
        seen.read_at -= MOST_BEHIND;
        assert_eq!(seen.recent(), None);
        assert_eq!(seen.changed_to(read).recent(), None, "a change is no new reading");
    }
}
