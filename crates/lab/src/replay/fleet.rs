//! How many drivers serve a plan, and where they wait.

use geo::{Distance, Haversine, Point};
use rand::{Rng, seq::IndexedRandom};

use super::{
    choices::ChoiceSeed,
    plan::{PlannedOrder, ReplayPlan},
};
use crate::testbed::drivers::SimulatedDriver;
use accounts::api_keys;

/// Replayed orders are all of this type.
pub(super) const SERVICE_TYPE: &str = "RIDE";

/// Drivers for each order that has one at the busiest moment: they stand where they were put, so some are always far
/// off, and others think about offers they will not accept.
const PER_PEAK_ORDER: usize = 2;
/// Places looked at before a driver takes any, pickups compared with each, and what is near.
const PLACES: usize = 20;
const NEIGHBOURS: usize = 12;
const NEAR_M: f64 = 3_000.0;
const FEWEST: usize = 20;
const MOST: usize = 20_000;

/// How many drivers serve most orders of a plan.
pub(super) fn sufficient_drivers(plan: &ReplayPlan) -> usize {
    (plan.peak_orders() * PER_PEAK_ORDER).clamp(FEWEST, MOST)
}

/// Drivers at the pickup points of random orders, so that supply is where demand is.
pub(super) fn place_drivers(plan: &ReplayPlan, count: usize, seed: u64) -> Vec<SimulatedDriver> {
    let mut rng = ChoiceSeed::new(seed, &["fleet"]).into_rng();
    (1..=count)
        .filter_map(|n| {
            let at = waiting_place(&plan.orders, &mut rng)?;
            Some(SimulatedDriver { id: format!("driver-{n:05}"), key: api_keys::generate_key(), at })
        })
        .collect()
}

/// No driver waits at the end of the world: one of some other random pickups must be near. So lonely orders tend to find
/// no driver, as in life.
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
