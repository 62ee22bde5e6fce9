//! Where drivers wait and orders are: at the same places, so far from each other that none has drivers of two. Pure.

use std::time::Duration;

use geo::Point;
use serde_json::{Value, json};

use crate::testbed::{drivers::SimulatedDriver, producer::ProducedOrder};
use dispatch::accounts::api_keys;

pub(super) const SERVICE_TYPE: &str = "RIDE";
/// Drivers farther from an order are not asked.
pub(super) const RADIUS_M: f64 = 2_000.0;
/// Places are in rows of so many, so many degrees from each other: 5.5 km.
const ROW: u32 = 10;
const DEGREES: f64 = 0.05;
pub(super) const PLACES: u32 = 100;
/// Drivers for each order that comes in a second. An order has one for 2 s and another for 1.2 s; with as many again at each place
/// there is a free one when orders come unevenly.
const DRIVERS_PER_RATE: u32 = 8;
/// At a place at least.
const FEWEST: u32 = 4;

fn place(n: u32) -> Point {
    let (row, column) = (n % PLACES / ROW, n % ROW);
    Point::new(106.6 + f64::from(column) * DEGREES, -6.5 + f64::from(row) * DEGREES)
}

/// Enough for orders at `rate` per second.
pub(super) fn place_drivers(rate: u32) -> Vec<SimulatedDriver> {
    let count = rate.saturating_mul(DRIVERS_PER_RATE).max(PLACES * FEWEST);
    (0..count)
        .map(|n| SimulatedDriver { id: format!("driver-{n:06}"), key: api_keys::generate_key(), at: place(n) })
        .collect()
}

pub(super) fn order_creations(rate: u32, orders: u32) -> impl Iterator<Item = ProducedOrder> {
    (0..orders).map(move |n| {
        let id = format!("life-{:07}", n + 1);
        let at = Duration::from_secs_f64(f64::from(n) / f64::from(rate));
        ProducedOrder { body: order_body(&id, place(n)), id, at }
    })
}

fn order_body(id: &str, pickup: Point) -> Value {
    json!({
        "order_id": id,
        "service_type": SERVICE_TYPE,
        "pickup": { "latitude": pickup.y(), "longitude": pickup.x() },
        "payment_status": "PAID",
        "amount_minor": 4_500_000,
        "currency": "IDR",
    })
}

#[cfg(test)]
mod tests {
    use geo::{Distance, Haversine};

    use super::*;

    #[test]
    fn no_order_is_near_two_places() {
        let nearest = |n: u32| {
            let others = (0..PLACES).filter(|other| *other != n);
            others.map(|other| Haversine.distance(place(n), place(other))).fold(f64::MAX, f64::min)
        };
        assert!((0..PLACES).map(nearest).all(|metres| metres > 2.0 * RADIUS_M));
    }

    #[test]
    fn every_place_has_as_many_drivers() {
        for rate in [1, 100, 250] {
            let drivers = place_drivers(rate);
            let least = (0..PLACES).map(|n| drivers.iter().filter(|driver| driver.at == place(n)).count()).min();
            assert!(least >= Some(drivers.len() / PLACES as usize), "{rate}");
        }
    }

    #[test]
    fn orders_come_evenly() {
        let orders: Vec<ProducedOrder> = order_creations(100, 250).collect();
        assert_eq!(orders.last().map(|order| order.at.as_millis()), Some(2_490));
    }
}
