//! Basis of a decision about an order: its row, or the order as this process has just read or written it.
//!
//! A partner's response is applied to the order as it was read before the call. The change is written on condition that
//! the row is unchanged, which is the usual case. Otherwise the order is read again. A call thus costs one load instead
//! of two.
//!
//! The decision uses Postgres' time of that read. After a slow response the order is read again.

use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use jobs::OrderId;
use model::{ids::OfferId, order::Snapshot};
use uuid::Uuid;

/// Maximum age of a snapshot used for a decision.
const MOST_BEHIND: Duration = Duration::from_secs(1);

/// The order that the first decision of a change uses. Every later decision uses the row.
#[derive(Debug)]
pub enum Basis {
    /// The row, or the order as this process last wrote it.
    Fresh,
    /// The same, with this offer, however old it is.
    Offer(OfferId),
    /// An order that was read before. A decision that changes nothing is repeated on the row.
    Seen(Box<SeenOrder>),
}

impl Basis {
    /// Returns the offer that is loaded with the order, however old it is.
    pub(crate) fn offer(&self) -> Option<OfferId> {
        match self {
            Self::Fresh => None,
            Self::Offer(offer) => Some(*offer),
            Self::Seen(seen) => seen.offer,
        }
    }
}

/// Time of Postgres that a decision assumed instead of reading it, and the write that it is based on.
#[derive(Debug, Clone, Copy)]
pub struct AssumedTime {
    time: DateTime<Utc>,
    at: Instant,
    pub(crate) write_id: Uuid,
}

impl AssumedTime {
    pub(crate) fn new(time: DateTime<Utc>, write_id: Uuid) -> Self {
        Self { time, at: Instant::now(), write_id }
    }

    /// Returns what Postgres' clock must show now, if the assumption was right.
    pub(crate) fn now(self) -> DateTime<Utc> {
        self.time + TimeDelta::from_std(self.at.elapsed()).unwrap_or_default()
    }
}

/// An order and the time of its read.
#[derive(Debug, Clone)]
pub struct SeenOrder {
    snapshot: Snapshot,
    read_at: Instant,
    /// Offer that was loaded with the order, however old it is.
    offer: Option<OfferId>,
    /// Time that a decision on a kept order assumes. `None` if the snapshot's time was read with the row.
    pub(crate) assumed: Option<AssumedTime>,
}

impl SeenOrder {
    /// Wraps an order that has just been read.
    pub fn new(snapshot: Snapshot) -> Self {
        Self::asked_at(snapshot, Instant::now())
    }

    /// Wraps an order whose read was started at `read_at`.
    pub(crate) fn asked_at(snapshot: Snapshot, read_at: Instant) -> Self {
        Self { snapshot, read_at, offer: None, assumed: None }
    }

    /// Adds the offer that was loaded with the order.
    #[must_use]
    pub(crate) fn with_offer(self, offer: Option<OfferId>) -> Self {
        Self { offer, ..self }
    }

    /// Makes the write require that Postgres' time agrees with the assumed time.
    #[must_use]
    pub(crate) fn assuming(self, assumed: Option<AssumedTime>) -> Self {
        Self { assumed, ..self }
    }

    /// Returns the order after a change that was decided on this read. The time of the read is kept.
    #[must_use]
    pub fn changed_to(self, after: Snapshot) -> Self {
        Self { snapshot: after, ..self }
    }

    pub fn id(&self) -> &OrderId {
        &self.snapshot.order.id
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    pub fn into_snapshot(self) -> Snapshot {
        self.snapshot
    }

    /// Returns the basis of a decision like [`basis`](Self::basis), without a copy.
    pub fn into_basis(self) -> Basis {
        if self.is_recent() { Basis::Seen(Box::new(self)) } else { self.fresh_basis() }
    }

    /// Returns the order as the basis of a decision, or the row if the order was read too long ago to decide on.
    pub fn basis(&self) -> Basis {
        if self.is_recent() { Basis::Seen(Box::new(self.clone())) } else { self.fresh_basis() }
    }

    fn is_recent(&self) -> bool {
        self.read_at.elapsed() < MOST_BEHIND
    }

    fn fresh_basis(&self) -> Basis {
        self.offer.map_or(Basis::Fresh, Basis::Offer)
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
        assert!(matches!(seen.basis(), Basis::Seen(seen) if seen.snapshot == read));
        seen.read_at -= MOST_BEHIND;
        assert!(matches!(seen.basis(), Basis::Fresh));
        assert!(matches!(seen.changed_to(read).basis(), Basis::Fresh), "a change does not renew the read");
    }
}
