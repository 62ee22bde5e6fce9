//! The columns of an order row that its own timers are derived from.

use chrono::{DateTime, TimeDelta, Utc};
use jobs::OrderId;

use super::OrderStatus;
use crate::ids::PartnerName;

/// Maximum pause between searches for which repeated empty searches are not written. The reconciler counts a job that
/// is postponed for longer as lost.
const LONGEST_UNWRITTEN: TimeDelta = TimeDelta::minutes(1);

/// The columns of `orders` that determine the timers of an order; see [`Order`](super::Order) for each. The reconciler
/// reads them for every open order.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct OrderDeadlines {
    #[sqlx(try_from = "String")]
    pub id: OrderId,
    pub status: OrderStatus,
    pub partner: Option<PartnerName>,
    pub attempt_no: i32,
    pub round: i32,
    pub attempt_deadline: Option<DateTime<Utc>>,
    pub wave_no: i32,
    pub next_wave_at: Option<DateTime<Utc>>,
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub poll_no: i32,
    pub next_poll_at: Option<DateTime<Utc>>,
    pub lifetime_deadline: DateTime<Utc>,
    pub warn_at: Option<DateTime<Utc>>,
    pub lifetime_waived: bool,
    pub trip_deadline: Option<DateTime<Utc>>,
    pub held_for_review: bool,
    pub updated_at: DateTime<Utc>,
}

impl OrderDeadlines {
    /// Returns the pause between two searches for an own driver, as the latest search without a driver wrote it.
    /// `None`: the row has changed since, or the pause is too long to leave searches unwritten.
    pub fn search_pause(&self) -> Option<TimeDelta> {
        let pause = self.next_attempt_at? - self.updated_at;
        let was_searched = self.partner.is_none() && self.round > 1;
        (was_searched && pause > TimeDelta::zero() && pause <= LONGEST_UNWRITTEN).then_some(pause)
    }

    /// Returns when the next attempt is due. For an order that waits for a driver, this is the due time of its latest
    /// search. Empty searches repeat after the same pause without a write to the row.
    pub fn attempt_due(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let first = self.next_attempt_at?;
        let Some(pause) = self.search_pause().filter(|_| now > first) else { return Some(first) };
        let pause_ms = pause.num_milliseconds().max(1);
        let repeats = (now - first).num_milliseconds() / pause_ms;
        Some(first + TimeDelta::milliseconds(repeats * pause_ms))
    }

    /// Returns when the next attempt is due, like [`attempt_due`](Self::attempt_due). For an order that waits for a
    /// driver, it is the search after the one that is due.
    pub fn next_search_at(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let due = self.attempt_due(now)?;
        Some(self.search_pause().filter(|_| due <= now).map_or(due, |pause| due + pause))
    }
}
