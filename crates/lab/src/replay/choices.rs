//! Choices of simulated drivers, and their durations. Pure.
//!
//! Every choice is drawn from the seed and its subject, never from a shared generator. So it does not depend on which
//! offer arrives first, and two replays of the same rides with the same seed differ only where timing decides.

use std::time::Duration;

use rand::RngExt;

use crate::testbed::drivers::{DriverChoice, DriverReaction};
pub(super) use partner_sim::seeded_rng::ChoiceSeed;

/// Minimum time of an answer.
const FASTEST_S: f64 = 3.0;
/// Maximum time of an answer, in attempts. An answer after more than one attempt is too late.
const SLOWEST_ATTEMPTS: f64 = 1.5;

pub(super) const MAX_APPROACH: Duration = Duration::from_secs(6 * 60);
pub(super) const MAX_TRIP: Duration = Duration::from_secs(40 * 60);
const MIN_TRIP: Duration = Duration::from_secs(2 * 60);

const DECLINE_REASONS: [&str; 3] = ["too far", "on a break", "going home"];

/// Behaviour of all drivers.
#[derive(Debug, Clone, Copy)]
pub(super) struct DriverBehaviour {
    pub(super) seed: u64,
    pub(super) accept_rate: f64,
    /// Lifetime of an offer.
    pub(super) attempt: Duration,
}

/// Draws the reaction of `driver` to attempt `attempt` of `order`. Drivers that do not accept decline or ignore with
/// equal probability.
pub(super) fn choose_reaction(behaviour: &DriverBehaviour, driver: &str, order: &str, attempt: u64) -> DriverChoice {
    let mut rng = ChoiceSeed::new(behaviour.seed, &["offer", driver, order, &attempt.to_string()]).into_rng();
    let reaction = if rng.random::<f64>() < behaviour.accept_rate {
        DriverReaction::Accept
    } else if rng.random() {
        DriverReaction::Decline(DECLINE_REASONS[rng.random_range(0..DECLINE_REASONS.len())])
    } else {
        DriverReaction::Ignore
    };
    // The random number is cubed, so that half of the drivers answer within half a minute, and one in eight too late.
    let slowest_s = (behaviour.attempt.as_secs_f64() * SLOWEST_ATTEMPTS).max(FASTEST_S);
    let after_s = FASTEST_S + (slowest_s - FASTEST_S) * rng.random::<f64>().powi(3);
    DriverChoice { reaction, after: Duration::from_secs_f64(after_s) }
}

/// Returns whether the customer of an order is loyal.
pub(super) fn is_loyal(seed: u64, order: &str, rate: f64) -> bool {
    ChoiceSeed::new(seed, &["loyalty", order]).into_rng().random::<f64>() < rate
}

/// Returns the time from acceptance to pickup.
pub(super) fn approach_duration(seed: u64, order: &str) -> Duration {
    let seconds = ChoiceSeed::new(seed, &["approach", order]).into_rng().random_range(60..=MAX_APPROACH.as_secs());
    Duration::from_secs(seconds)
}

/// Returns the time from pickup to completion: that of the ride within bounds, or an average trip if the file has none.
pub(super) fn trip_duration(seed: u64, order: &str, ride: Option<Duration>) -> Duration {
    let ordinary = || Duration::from_secs(ChoiceSeed::new(seed, &["trip", order]).into_rng().random_range(300..=1200));
    ride.unwrap_or_else(ordinary).clamp(MIN_TRIP, MAX_TRIP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behaviour(seed: u64, accept_rate: f64) -> DriverBehaviour {
        DriverBehaviour { seed, accept_rate, attempt: Duration::from_secs(120) }
    }

    fn choices(accept_rate: f64) -> Vec<DriverChoice> {
        (0..2000).map(|n| choose_reaction(&behaviour(1, accept_rate), &format!("D{n}"), "ride-1", 1)).collect()
    }

    #[test]
    fn reactions_follow_the_accept_rate() {
        let count = |wanted: fn(&DriverChoice) -> bool| choices(0.8).iter().filter(|c| wanted(c)).count();
        let accepted = count(|c| c.reaction == DriverReaction::Accept);
        let ignored = count(|c| c.reaction == DriverReaction::Ignore);
        assert!((1540..1660).contains(&accepted), "{accepted}");
        assert!((150..250).contains(&ignored), "{ignored}");
    }
}
