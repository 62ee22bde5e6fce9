//! What simulated drivers do, and how long it takes. Pure.
//!
//! Every choice is drawn from the seed and from what it is about, never from a shared generator: it does not depend on
//! which offer happens to arrive first, so two replays of the same rides with the same seed differ in nothing they can
//! help.

use std::time::Duration;

use rand::RngExt;

use crate::testbed::drivers::{DriverChoice, DriverReaction};
pub(super) use partner_sim::seeded_rng::ChoiceSeed;

/// No driver answers faster.
const FASTEST_S: f64 = 3.0;
/// Nor later than this many attempts; who is later than one comes too late.
const SLOWEST_ATTEMPTS: f64 = 1.5;

pub(super) const MAX_APPROACH: Duration = Duration::from_secs(6 * 60);
pub(super) const MAX_TRIP: Duration = Duration::from_secs(40 * 60);
const MIN_TRIP: Duration = Duration::from_secs(2 * 60);

const DECLINE_REASONS: [&str; 3] = ["too far", "on a break", "going home"];

/// What all drivers have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct DriverBehaviour {
    pub(super) seed: u64,
    pub(super) accept_rate: f64,
    /// How long an offer stands.
    pub(super) attempt: Duration,
}

/// The choice of `driver` about attempt `attempt` of `order`. Who does not accept declines or ignores, as often.
pub(super) fn choose_reaction(behaviour: &DriverBehaviour, driver: &str, order: &str, attempt: u64) -> DriverChoice {
    let mut rng = ChoiceSeed::new(behaviour.seed, &["offer", driver, order, &attempt.to_string()]).into_rng();
    let reaction = if rng.random::<f64>() < behaviour.accept_rate {
        DriverReaction::Accept
    } else if rng.random() {
        DriverReaction::Decline(DECLINE_REASONS[rng.random_range(0..DECLINE_REASONS.len())])
    } else {
        DriverReaction::Ignore
    };
    // Cubed: half answer within half a minute, one in eight too late.
    let slowest_s = (behaviour.attempt.as_secs_f64() * SLOWEST_ATTEMPTS).max(FASTEST_S);
    let after_s = FASTEST_S + (slowest_s - FASTEST_S) * rng.random::<f64>().powi(3);
    DriverChoice { reaction, after: Duration::from_secs_f64(after_s) }
}

/// Whether the customer of an order is a loyal one.
pub(super) fn is_loyal(seed: u64, order: &str, rate: f64) -> bool {
    ChoiceSeed::new(seed, &["loyalty", order]).into_rng().random::<f64>() < rate
}

/// From acceptance to pickup.
pub(super) fn approach_duration(seed: u64, order: &str) -> Duration {
    let seconds = ChoiceSeed::new(seed, &["approach", order]).into_rng().random_range(60..=MAX_APPROACH.as_secs());
    Duration::from_secs(seconds)
}

/// From pickup to completion: as the ride went, within bounds, or an ordinary trip when the file does not say.
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
    fn the_accept_rate_holds_and_the_rest_is_halved() {
        let count = |wanted: fn(&DriverChoice) -> bool| choices(0.8).iter().filter(|c| wanted(c)).count();
        let accepted = count(|c| c.reaction == DriverReaction::Accept);
        let ignored = count(|c| c.reaction == DriverReaction::Ignore);
        assert!((1540..1660).contains(&accepted), "{accepted}");
        assert!((150..250).contains(&ignored), "{ignored}");
    }
}
