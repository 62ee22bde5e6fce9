//! How many drivers serve a plan, and where they wait.

use geo::{Distance, Haversine, Point};
use rand::{Rng, seq::IndexedRandom};

use super::{
    choices::ChoiceSeed,
    plan::{PlannedOrder, ReplayPlan},
};
use crate::testbed::drivers::SimulatedDriver;
use dispatch::accounts::api_keys;

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

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use super::*;

    /// Orders at `points`, all at once.
    fn plan(points: impl Iterator<Item = Point>) -> ReplayPlan {
        let order = |(n, pickup): (usize, Point)| PlannedOrder {
            id: format!("ride-{n}"),
            at: Duration::ZERO,
            pickup,
            payment_status: "PAID",
            amount_minor: 1,
            approach: Duration::from_secs(60),
            trip: Duration::from_secs(600),
        };
        ReplayPlan { orders: points.enumerate().map(order).collect(), skipped: BTreeMap::new() }
    }

    #[test]
    fn drivers_wait_where_rides_are_frequent() {
        let lonely = Point::new(1.0, 1.0);
        let plan = plan((0..200).map(|n| if n == 0 { lonely } else { Point::new(f64::from(n) / 1e5, 0.0) }));
        let fleet = place_drivers(&plan, 300, 1);
        assert_eq!(fleet.len(), 300);
        assert!(fleet.iter().filter(|driver| driver.at == lonely).count() <= 1);
    }

    #[test]
    fn a_single_order_still_gets_drivers_around_it() {
        let plan = plan([Point::new(1.0, 1.0)].into_iter());
        assert_eq!(sufficient_drivers(&plan), FEWEST);
        assert_eq!(place_drivers(&plan, 3, 1).len(), 3);
    }

    #[test]
    fn the_same_seed_places_the_same_fleet() {
        let plan = plan((0..50).map(|n| Point::new(f64::from(n) / 100.0, 0.0)));
        let places = |seed| place_drivers(&plan, 20, seed).into_iter().map(|driver| driver.at).collect::<Vec<_>>();
        assert_eq!(places(1), places(1));
        assert_ne!(places(1), places(2));
    }
}
