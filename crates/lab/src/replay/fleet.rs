//! Number and places of the drivers for a plan.

use geo::{Distance, Haversine, Point};
use rand::{Rng, seq::IndexedRandom};

use super::{
    choices::ChoiceSeed,
    plan::{PlannedOrder, ReplayPlan},
};
use crate::testbed::drivers::SimulatedDriver;
use accounts::api_keys;

/// Service type of replayed orders.
pub(super) const SERVICE_TYPE: &str = "RIDE";

/// Drivers per order that has a driver at the peak. Drivers do not move, so some are always far away, and others answer
/// offers that they do not accept.
const PER_PEAK_ORDER: usize = 2;
/// Places tried for a driver, pickups compared with each, and distance that counts as near.
const PLACES: usize = 20;
const NEIGHBOURS: usize = 12;
const NEAR_M: f64 = 3_000.0;
const FEWEST: usize = 20;
const MOST: usize = 20_000;

/// Returns the number of drivers that serve most orders of a plan.
pub(super) fn sufficient_drivers(plan: &ReplayPlan) -> usize {
    (plan.peak_orders() * PER_PEAK_ORDER).clamp(FEWEST, MOST)
}

/// Places drivers at the pickups of random orders, so that supply is near demand.
pub(super) fn place_drivers(plan: &ReplayPlan, count: usize, seed: u64) -> Vec<SimulatedDriver> {
    let mut rng = ChoiceSeed::new(seed, &["fleet"]).into_rng();
    (1..=count)
        .filter_map(|n| {
            let at = waiting_place(&plan.orders, &mut rng)?;
            Some(SimulatedDriver { id: format!("driver-{n:05}"), key: api_keys::generate_key(), at })
        })
        .collect()
}

/// Returns a waiting place with another random pickup nearby, if possible. So isolated orders tend to find no driver,
/// as in reality.
fn waiting_place(orders: &[PlannedOrder], rng: &mut impl Rng) -> Option<Point> {
    let mut place = orders.choose(rng)?.pickup;
    for _ in 0..PLACES {
        let near = |other: &PlannedOrder| Haversine.distance(place, other.pickup) <= NEAR_M;
        if orders.sample(rng, NEIGHBOURS).any(near) {
            break;
        }
        place = orders.choose(rng)?.pickup;
    }
    Some(place)
}
