//! What an order's own timers follow from: a few columns of the many that a row has.

use chrono::{DateTime, TimeDelta, Utc};
use jobs::OrderId;

use super::OrderStatus;
use crate::ids::PartnerName;

/// A pause between searches that is no longer than this is not written again and again: a job that was put off by more is taken for
/// lost by the reconciler.
const LONGEST_UNWRITTEN: TimeDelta = TimeDelta::minutes(1);

/// The columns of a row of `orders` that determine its timers; each as in [`Order`](super::Order). The reconciler reads them of every
/// open order.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct OrderDeadlines {
    #[sqlx(try_from = "String")]
    pub id: OrderId,
    pub status: OrderStatus,
    pub partner: Option<PartnerName>,
    pub attempt_no: i32,
    pub round: i32,
    pub attempt_deadline: Option<DateTime<Utc>>,
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub poll_no: i32,
    pub next_poll_at: Option<DateTime<Utc>>,
    pub lifetime_deadline: DateTime<Utc>,
    pub lifetime_waived: bool,
    pub trip_deadline: Option<DateTime<Utc>>,
    pub held_for_review: bool,
    pub updated_at: DateTime<Utc>,
}

impl OrderDeadlines {
    /// The pause between two searches for an own driver, as the latest search that found none wrote it. `None`: something else happened
    /// since, or each search is written.
    pub fn search_pause(&self) -> Option<TimeDelta> {
        let pause = self.next_attempt_at? - self.updated_at;
        let was_searched = self.partner.is_none() && self.round > 1;
        (was_searched && pause > TimeDelta::zero() && pause <= LONGEST_UNWRITTEN).then_some(pause)
    }

    /// When the next attempt is to start. Of an order that waits for a driver: when its latest search fell due, for searches that find
    /// none follow each other by the same pause, and the row is not written for them.
    pub fn attempt_due(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let first = self.next_attempt_at?;
        let Some(pause) = self.search_pause().filter(|_| now > first) else { return Some(first) };
        let pause_ms = pause.num_milliseconds().max(1);
        let repeats = (now - first).num_milliseconds() / pause_ms;
        Some(first + TimeDelta::milliseconds(repeats * pause_ms))
    }

    /// As [`attempt_due`](Self::attempt_due); of an order that waits, the search that follows the one that is due.
    pub fn next_search_at(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let due = self.attempt_due(now)?;
        Some(self.search_pause().filter(|_| due <= now).map_or(due, |pause| due + pause))
    }
}
