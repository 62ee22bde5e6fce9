//! Durations and options of a service type. Values missing in the service type come from the default.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ranking::RankingWeights;

/// Action when no driver is left to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExhaustionAction {
    /// The order waits for a dispatcher, and all dispatchers are notified.
    Alert,
    /// The search restarts after the retry interval, until the lifetime ends.
    #[serde(alias = "research")]
    SearchAgain,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DispatchPolicy {
    /// Time that a driver has to answer.
    pub attempt: Duration,
    /// Pauses before the search restarts: after the first round, the second, and so on. The last value repeats. Never
    /// empty.
    pub retry: Vec<Duration>,
    /// Maximum time from creation until a driver is found. Then the system cancels the order.
    pub lifetime: Duration,
    pub radius_m: f64,
    /// Maximum number of drivers considered for one attempt.
    pub candidates: u16,
    /// Number of drivers asked at the same time. The first driver who accepts gets the order.
    pub ask_at_once: u16,
    /// Maximum number of live offers per driver, over all orders.
    pub offers_per_driver: u16,
    /// Time without offers for a driver after a declined or unanswered offer.
    pub cool_down: Duration,
    pub weights: RankingWeights,
    pub exhausted: ExhaustionAction,
    /// Whether the lifetime still ends an order that waits for a dispatcher.
    pub pending_keeps_lifetime: bool,
    /// Maximum time from assignment to pickup. Then support is notified. Zero: no limit.
    pub pickup_within: Duration,
    /// Maximum time from pickup to completion. Then support is notified. Zero: no limit.
    pub completion_within: Duration,
}

impl DispatchPolicy {
    /// Returns the number of drivers to load for the ranking: at least twice as many as are asked at the same time.
    pub fn candidate_limit(&self) -> usize {
        usize::from(self.candidates).max(2 * usize::from(self.ask_at_once))
    }

    /// Returns the pause after round `round` (from 1).
    pub fn retry_after(&self, round: i32) -> Duration {
        let index = usize::try_from(round - 1).unwrap_or(0);
        self.retry.get(index).or(self.retry.last()).copied().unwrap_or(Duration::from_secs(15))
    }
}

#[cfg(any(test, feature = "fixtures"))]
pub fn example_policy() -> DispatchPolicy {
    DispatchPolicy {
        attempt: Duration::from_secs(120),
        retry: vec![Duration::from_secs(15), Duration::from_secs(30)],
        lifetime: Duration::from_secs(1800),
        radius_m: 5_000.0,
        candidates: 50,
        ask_at_once: 1,
        offers_per_driver: 1,
        cool_down: Duration::from_secs(15),
        weights: RankingWeights { idle_minute_m: 0.0, live_offer_m: 500.0 },
        exhausted: ExhaustionAction::SearchAgain,
        pending_keeps_lifetime: true,
        pickup_within: Duration::from_secs(12 * 3600),
        completion_within: Duration::from_secs(6 * 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_retry_pause_repeats() {
        let pauses: Vec<_> = (1..=4).map(|round| example_policy().retry_after(round).as_secs()).collect();
        assert_eq!(pauses, [15, 30, 30, 30]);
    }
}
