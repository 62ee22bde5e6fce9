//! The turn to run suspects: one process of the fleet has it, and divides its time between suspects and normal jobs.
//! Design: docs/design/queue.md.
//!
//! A process that has the turn takes no more jobs until it has none, then runs suspects one by one. After [`SLICE`] it
//! gives the turn back, and runs normal jobs for at least as long as its turn took. So suspects cost one process at
//! most half of its time, and a fleet of one process makes progress on both.

use std::time::{Duration, Instant};

use crate::store::TakeMode;

/// Time for which a process takes suspects, from the moment at which it has no other jobs.
const SLICE: Duration = Duration::from_millis(250);

const SHORTEST_REST: Duration = Duration::from_millis(100);

/// State of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum SuspectTurn {
    /// Runs normal jobs, and asks for the turn when suspects are due.
    #[default]
    Open,
    /// Has the turn since `since`. `alone_since` is the first time at which it had no jobs.
    Ours { since: Instant, alone_since: Option<Instant> },
    /// Runs only normal jobs until this time.
    Resting { until: Instant },
}

impl SuspectTurn {
    /// Returns the mode of the next take. `is_idle` means that this process has no jobs.
    pub(super) fn next_mode(&mut self, is_idle: bool, now: Instant) -> TakeMode {
        match self {
            Self::Open => TakeMode::Normal,
            Self::Resting { until } if now < *until => TakeMode::Rest,
            Self::Resting { .. } => {
                *self = Self::Open;
                TakeMode::Normal
            }
            Self::Ours { .. } if !is_idle => TakeMode::Quiesce,
            Self::Ours { since, alone_since } => {
                if now.duration_since(*alone_since.get_or_insert(now)) < SLICE {
                    return TakeMode::Alone;
                }
                *self = Self::start_rest(*since, now);
                TakeMode::Rest
            }
        }
    }

    /// Records the result of a take. Returns whether the turn started or ended with it.
    pub(super) fn update_after_take(
        &mut self,
        has_turn: bool,
        suspects: bool,
        holds_suspect: bool,
        now: Instant,
    ) -> bool {
        let next = match *self {
            Self::Open if has_turn => Self::Ours { since: now, alone_since: None },
            // While this process was frozen, its turn may have passed to another process. The turn ends when its
            // suspect has run.
            Self::Ours { since, .. } if !(holds_suspect || has_turn && suspects) => Self::start_rest(since, now),
            same => same,
        };
        std::mem::replace(self, next) != next
    }

    /// Gives the turn up; the next take returns it. Used when this process runs suspects of another shard, or when this
    /// shard is closed or does not answer.
    pub(super) fn give_up(&mut self, now: Instant) {
        *self = Self::start_rest(now, now);
    }

    pub(super) fn is_ours(self) -> bool {
        matches!(self, Self::Ours { .. })
    }

    /// Returns the remaining rest of this process.
    pub(super) fn rests_for(self, now: Instant) -> Option<Duration> {
        match self {
            Self::Resting { until } => Some(until.saturating_duration_since(now)),
            Self::Open | Self::Ours { .. } => None,
        }
    }

    fn start_rest(since: Instant, now: Instant) -> Self {
        Self::Resting { until: now + now.duration_since(since).max(SHORTEST_REST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_is_as_long_as_the_turn() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut turn = SuspectTurn::default();
        assert_eq!(turn.next_mode(false, start), TakeMode::Normal);
        assert!(turn.update_after_take(true, true, false, start));
        assert_eq!(turn.next_mode(false, at(700)), TakeMode::Quiesce);
        assert!(!turn.update_after_take(true, true, false, at(700)));
        assert_eq!(turn.next_mode(true, at(750)), TakeMode::Alone);
        assert!(!turn.update_after_take(true, true, true, at(750)));
        assert_eq!(turn.next_mode(true, at(999)), TakeMode::Alone);
        assert_eq!(turn.next_mode(true, at(1_000)), TakeMode::Rest);
        assert_eq!(turn.rests_for(at(1_000)), Some(Duration::from_secs(1)));
        assert_eq!(turn.next_mode(true, at(1_999)), TakeMode::Rest);
        assert_eq!(turn.next_mode(true, at(2_000)), TakeMode::Normal);
    }

    #[test]
    fn turn_ends_without_suspect_or_with_other_holder() {
        let now = Instant::now();
        for (has_turn, suspects) in [(true, false), (false, true)] {
            let mut turn = SuspectTurn::Ours { since: now, alone_since: None };
            assert!(!turn.update_after_take(has_turn, suspects, true, now), "not before its suspect has run");
            assert!(turn.update_after_take(has_turn, suspects, false, now));
            assert_eq!(turn.next_mode(true, now), TakeMode::Rest);
        }
    }
}
