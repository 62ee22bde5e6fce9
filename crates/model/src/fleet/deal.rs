//! Matches drivers with orders when several orders wait and few drivers are free. Pure.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use jobs::OrderId;

use crate::ids::DriverId;

/// A driver who may be asked for a waiting order.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct OpenPair {
    #[sqlx(try_from = "String")]
    pub order_id: OrderId,
    /// Creation time of the order; older orders come first.
    pub created_at: DateTime<Utc>,
    pub driver_id: DriverId,
    pub distance_m: f64,
}

/// Matches the oldest order with its nearest driver, the next oldest with its nearest remaining driver, and so on. Each
/// order and each driver is matched at most once. For n orders, pass the n nearest drivers of each order; for n
/// drivers, the n oldest orders of each driver. Then no order is left out that could have a driver.
pub fn deal_drivers(mut pairs: Vec<OpenPair>) -> Vec<OpenPair> {
    pairs.sort_by(|a, b| {
        let by_age = a.created_at.cmp(&b.created_at).then_with(|| a.order_id.cmp(&b.order_id));
        by_age.then(a.distance_m.total_cmp(&b.distance_m)).then_with(|| a.driver_id.cmp(&b.driver_id))
    });
    let (mut orders, mut drivers) = (HashSet::new(), HashSet::new());
    pairs.retain(|pair| {
        let is_open = !orders.contains(&pair.order_id) && !drivers.contains(&pair.driver_id);
        if is_open {
            orders.insert(pair.order_id.clone());
            drivers.insert(pair.driver_id.clone());
        }
        is_open
    });
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(order: &str, age_s: i64, driver: &str, distance_m: f64) -> OpenPair {
        let created_at = DateTime::from_timestamp(1_800_000_000 - age_s, 0).unwrap();
        OpenPair { order_id: order.parse().unwrap(), created_at, driver_id: driver.into(), distance_m }
    }

    fn dealt(pairs: Vec<OpenPair>) -> Vec<(String, String)> {
        deal_drivers(pairs).iter().map(|pair| (pair.order_id.to_string(), pair.driver_id.to_string())).collect()
    }

    #[test]
    fn oldest_order_gets_nearest_driver() {
        let pairs = vec![
            pair("YOUNG", 10, "D1", 10.0),
            pair("OLD", 60, "D2", 900.0),
            pair("OLD", 60, "D1", 500.0),
            pair("YOUNG", 10, "D2", 20.0),
        ];
        let expected = [("OLD", "D1"), ("YOUNG", "D2")].map(|(order, driver)| (order.to_owned(), driver.to_owned()));
        assert_eq!(dealt(pairs), expected);
    }

    #[test]
    fn driver_is_matched_with_one_order() {
        let pairs = (0..100).map(|n| pair(&format!("O{n}"), n, "D1", 100.0)).collect();
        assert_eq!(dealt(pairs), [("O99".to_owned(), "D1".to_owned())]);
        assert!(dealt(Vec::new()).is_empty());
    }

    #[test]
    fn equal_numbers_match_every_order() {
        let pairs = (0..20).flat_map(|o| (0..20).map(move |d| pair(&format!("O{o}"), o, &format!("D{d}"), 1.0)));
        assert_eq!(dealt(pairs.collect()).len(), 20);
    }
}
