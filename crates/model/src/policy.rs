//! Durations and options of a service type. Values missing in the service type come from the default.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ranking::{RankedDriver, RankingWeights};

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

/// Step of an attempt. It asks further drivers; the offers of earlier waves stay live. The first driver who accepts gets
/// the order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wave {
    /// Number of drivers that the wave asks.
    pub ask: u16,
    /// Maximum distance of a driver from the pickup.
    pub radius_m: f64,
    /// Time until the next wave. Not used for the last wave, which lasts until the attempt's deadline.
    pub lasts: Duration,
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
    /// Steps of an attempt, the narrowest circle first; never empty. A service type without waves has a single one.
    pub waves: Vec<Wave>,
    /// Maximum number of drivers considered for one attempt.
    pub candidates: u16,
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
    /// Returns the number of drivers to load for the ranking: at least twice as many as an attempt asks.
    pub fn candidate_limit(&self) -> usize {
        let asked: usize = self.waves.iter().map(|wave| usize::from(wave.ask)).sum();
        usize::from(self.candidates).max(2 * asked)
    }

    /// Returns the radius of the widest wave. Drivers farther away are never asked.
    pub fn radius_m(&self) -> f64 {
        self.waves.last().map_or(0.0, |wave| wave.radius_m)
    }

    /// Returns the wave with this number, from 1.
    pub fn wave(&self, number: i32) -> Option<&Wave> {
        self.waves.get(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    /// Returns the first wave, from number `first` on, whose circle contains a ranked driver, with the drivers in that
    /// circle. Returns `None` if no such wave contains one.
    pub fn find_wave(&self, first: i32, mut ranked: Vec<RankedDriver>) -> Option<(i32, Vec<RankedDriver>)> {
        let nearest_m = ranked.iter().map(|driver| driver.distance_m).min_by(f64::total_cmp)?;
        let mut numbered = (1..).zip(&self.waves).skip_while(|(number, _)| *number < first);
        let (number, wave) = numbered.find(|(_, wave)| nearest_m <= wave.radius_m)?;
        ranked.retain(|driver| driver.distance_m <= wave.radius_m);
        Some((number, ranked))
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
        waves: vec![Wave { ask: 1, radius_m: 5_000.0, lasts: Duration::ZERO }],
        candidates: 50,
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
    use crate::ranking::fixture::ranking_of;

    #[test]
    fn first_wave_with_a_driver_is_found() {
        let wave = |ask, radius_m| Wave { ask, radius_m, lasts: Duration::from_secs(20) };
        let policy =
            DispatchPolicy { waves: vec![wave(1, 500.0), wave(2, 2_000.0), wave(5, 5_000.0)], ..example_policy() };
        let driver = |distance_m: f64| RankedDriver { distance_m, ..ranking_of(&["D"]).ranked.remove(0) };
        let found = |first, distances: &[f64]| {
            let (number, ranked) = policy.find_wave(first, distances.iter().map(|m| driver(*m)).collect())?;
            Some((number, ranked.len()))
        };
        assert_eq!(found(1, &[400.0, 600.0]), Some((1, 1)));
        assert_eq!(found(2, &[400.0, 600.0, 3_000.0]), Some((2, 2)));
        assert_eq!(found(1, &[3_000.0]), Some((3, 1)), "waves without a driver are skipped");
        assert_eq!((found(4, &[400.0]), found(1, &[]), found(1, &[6_000.0])), (None, None, None));
        assert_eq!((policy.radius_m(), policy.candidate_limit()), (5_000.0, 50));
    }

    #[test]
    fn last_retry_pause_repeats() {
        let pauses: Vec<_> = (1..=4).map(|round| example_policy().retry_after(round).as_secs()).collect();
        assert_eq!(pauses, [15, 30, 30, 30]);
    }
}
