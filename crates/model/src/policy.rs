//! The durations and choices of a service type, resolved: service type -> default.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ranking::RankingWeights;

/// What happens when no driver is left to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExhaustionAction {
    /// The order waits for a dispatcher, and every dispatcher is told.
    Alert,
    /// The search restarts after the retry interval, until the lifetime ends.
    #[serde(alias = "research")]
    SearchAgain,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DispatchPolicy {
    /// How long a driver may take to answer.
    pub attempt: Duration,
    /// Pause before the search restarts: after the first round, the second, ...; the last value stays. Never empty.
    pub retry: Vec<Duration>,
    /// From creation to a driver; after it the system cancels.
    pub lifetime: Duration,
    pub radius_m: f64,
    /// Drivers looked at for one attempt.
    pub candidates: u16,
    /// Drivers asked at once; the first who accepts has the order.
    pub ask_at_once: u16,
    /// Live offers one driver may hold, of all orders.
    pub offers_per_driver: u16,
    /// After a decline, or an offer left unanswered, a driver is asked nothing for so long.
    pub cool_down: Duration,
    pub weights: RankingWeights,
    pub exhausted: ExhaustionAction,
    /// Does the lifetime end an order that waits for a dispatcher?
    pub pending_keeps_lifetime: bool,
    /// From a driver to the pickup; after it support is told. Zero: never.
    pub pickup_within: Duration,
    /// From the pickup to the trip's end; after it support is told. Zero: never.
    pub completion_within: Duration,
}

impl DispatchPolicy {
    /// Drivers looked at first: twice as many as are to be asked, at least.
    pub fn candidate_limit(&self) -> usize {
        usize::from(self.candidates).max(2 * usize::from(self.ask_at_once))
    }

    /// The pause after round `round` (from 1).
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
    fn the_last_pause_stays() {
        let pauses: Vec<_> = (1..=4).map(|round| example_policy().retry_after(round).as_secs()).collect();
        assert_eq!(pauses, [15, 30, 30, 30]);
    }
}
