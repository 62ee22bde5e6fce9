//! Plan of the replayed orders and their times.
//!
//! Rows are read in file order until there are enough orders, and then sorted by time. `--fold-days` puts all of them
//! on one day, each at its time of day.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, ensure};
use chrono::{NaiveDate, NaiveDateTime};
use geo::Point;

use super::{
    choices::{self, ChoiceSeed},
    options::ReplayOptions,
    rides::{TaxiRide, TaxiRides},
    sample,
    zones::ZoneMap,
};
use crate::testbed::producer::{OrderDraft, ProducedOrder};

/// Currency of the amounts in ride files, which have no currency column.
const CURRENCY: &str = "USD";
/// Loyalty level of customers that full areas admit.
const LOYALTY: &str = "ELITE";

/// An order to create, and the durations of its trip. All times are simulated time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlannedOrder {
    pub(super) id: String,
    /// Time since the creation of the first order.
    pub(super) at: Duration,
    pub(super) pickup: Point,
    pub(super) payment_status: &'static str,
    pub(super) amount_minor: i64,
    /// Time from acceptance to pickup.
    pub(super) approach: Duration,
    /// Time from pickup to completion.
    pub(super) trip: Duration,
}

/// Plan of a replay.
#[derive(Debug)]
pub(super) struct ReplayPlan {
    /// Orders by time of creation.
    pub(super) orders: Vec<PlannedOrder>,
    pub(super) skipped: BTreeMap<&'static str, u64>,
}

impl ReplayPlan {
    pub(super) fn load(options: &ReplayOptions) -> anyhow::Result<Self> {
        let limit = options.limit.map_or(usize::MAX, std::num::NonZero::get);
        let mut rides = TaxiRides::default();
        let zones;
        if options.is_sample() {
            zones = ZoneMap::parse(sample::ZONES, &sample::NAME)?;
            rides.read_csv(sample::RIDES.as_bytes(), &sample::NAME, &zones, limit)?;
        } else {
            let path =
                options.zones.as_ref().context("--rides needs --zones FILE, the polygons of the rides' zones")?;
            zones = ZoneMap::read_file(path)?;
            for path in &options.rides {
                rides.read_file(path, &zones, limit)?;
            }
        }
        Self::new(rides, &zones, options.fold_days, options.seed)
    }

    fn new(rides: TaxiRides, zones: &ZoneMap, fold_days: bool, seed: u64) -> anyhow::Result<Self> {
        let TaxiRides { rides, skipped } = rides;
        ensure!(!rides.is_empty(), "no row can be played as an order; skipped: {skipped:?}");
        let mut timed: Vec<(NaiveDateTime, PlannedOrder)> = rides
            .iter()
            .enumerate()
            .filter_map(|(n, ride)| Some((creation_time(ride, fold_days), plan_order(n, ride, zones, seed)?)))
            .collect();
        // A stable sort: rides of the same second keep the order of the file.
        timed.sort_by_key(|(time, _)| *time);
        let first = timed.first().map(|(time, _)| *time).context("no ride lies in a known zone")?;
        let orders = timed
            .into_iter()
            .map(|(time, order)| PlannedOrder { at: (time - first).to_std().unwrap_or_default(), ..order })
            .collect();
        Ok(Self { orders, skipped })
    }

    /// Returns the orders for the producer.
    pub(super) fn order_creations(&self, options: &ReplayOptions) -> impl Iterator<Item = ProducedOrder> {
        self.orders.iter().map(move |order| {
            let draft = OrderDraft {
                service_type: options.strategy.service_type(),
                pickup: (order.pickup.y(), order.pickup.x()),
                payment_status: order.payment_status,
                amount_minor: order.amount_minor,
                currency: CURRENCY,
            };
            let mut created = draft.at(order.at.div_f64(options.replay_speed()), order.id.clone());
            if choices::is_loyal(options.seed, &order.id, options.loyal_rate()) {
                created.body["loyalty_level"] = LOYALTY.into();
            }
            created
        })
    }

    /// Returns the time from the first creation to the last.
    pub(super) fn creation_span(&self) -> Duration {
        self.orders.last().map_or(Duration::ZERO, |order| order.at)
    }

    /// Returns the maximum number of orders with a driver at the same time, if each found one immediately.
    pub(super) fn peak_orders(&self) -> usize {
        let mut changes: Vec<(Duration, isize)> = self
            .orders
            .iter()
            .flat_map(|order| [(order.at, 1), (order.at + order.approach + order.trip, -1)])
            .collect();
        changes.sort_unstable();
        let running = changes.iter().scan(0, |busy, (_, change)| {
            *busy += change;
            Some(*busy)
        });
        running.max().unwrap_or(0).unsigned_abs()
    }
}

fn creation_time(ride: &TaxiRide, fold_days: bool) -> NaiveDateTime {
    if fold_days { NaiveDate::default().and_time(ride.pickup.time()) } else { ride.pickup }
}

/// Converts the n-th ride to an order. Its random choices depend only on the seed and its number.
fn plan_order(n: usize, ride: &TaxiRide, zones: &ZoneMap, seed: u64) -> Option<PlannedOrder> {
    let id = format!("ride-{:06}", n + 1);
    let pickup = zones.random_point(ride.zone, &mut ChoiceSeed::new(seed, &["pickup", &id]).into_rng())?;
    Some(PlannedOrder {
        at: Duration::ZERO,
        pickup,
        payment_status: ride.payment_status,
        amount_minor: ride.amount_minor,
        approach: choices::approach_duration(seed, &id),
        trip: choices::trip_duration(seed, &id, ride.trip),
        id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "pickup_datetime,dropoff_datetime,pickup_location_id,payment_type,total_amount\n";

    fn plan(rows: &str, limit: usize, fold_days: bool) -> ReplayPlan {
        let zones = super::super::zones::fixture();
        let mut rides = TaxiRides::default();
        rides.read_csv(format!("{HEADER}{rows}").as_bytes(), &"rides.csv", &zones, limit).unwrap();
        ReplayPlan::new(rides, &zones, fold_days, 1).unwrap()
    }

    fn times(plan: &ReplayPlan) -> Vec<(&str, u64)> {
        plan.orders.iter().map(|o| (o.id.as_str(), o.at.as_secs())).collect()
    }

    const ROWS: &str = "2019-01-31 08:00:00,,1,1,5\n2019-01-01 09:00:00,,1,1,5\n2019-01-02 07:00:00,,1,1,5\n";

    #[test]
    fn days_fold_by_time_of_day() {
        assert_eq!(times(&plan(ROWS, 9, true)), [("ride-000003", 0), ("ride-000001", 3600), ("ride-000002", 7200)]);
    }

    #[test]
    fn sample_has_orders_and_dirty_rows() {
        let zones = ZoneMap::parse(sample::ZONES, &sample::NAME).unwrap();
        let mut rides = TaxiRides::default();
        rides.read_csv(sample::RIDES.as_bytes(), &sample::NAME, &zones, usize::MAX).unwrap();
        assert_eq!(rides.skipped.len(), 7, "every reason occurs: {:?}", rides.skipped);
        let plan = ReplayPlan::new(rides, &zones, false, 1).unwrap();
        assert!((300..350).contains(&plan.orders.len()));
        assert!(plan.creation_span() < Duration::from_secs(3 * 3600));
    }
}
