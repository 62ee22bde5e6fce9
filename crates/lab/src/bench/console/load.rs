//! Steady load: orders of own drivers, created over HTTP and completed within seconds.
//!
//! They have their own service type and town. A free driver is offered the oldest order that waits nearby, and must not
//! search the thousands of filled orders for it.

use std::time::Duration;

use geo::Point;
use partner_sim::seeded_rng::ChoiceSeed;
use rand::RngExt;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::testbed::{
    Testbed,
    drivers::{
        DriverChoice, DriverReaction, DriverScript, OfferReceiver, RunningDrivers, SimulatedDriver, insert_drivers,
    },
    producer::{OrderDraft, OrderProducer, ProducedOrder},
};
use accounts::api_keys;
use foundation::db::Pool;

const SERVICE_TYPE: &str = "DELIVERY";
/// Latitude and longitude of the town.
const TOWN: (f64, f64) = (-6.9, 107.6);
/// Length of the line of drivers north of the town, so that each driver is near each pickup.
const SPREAD_DEGREES: f64 = 0.02;
/// Bounds of trip durations.
const TRIP_MS: (u64, u64) = (1_000, 3_000);
/// Drivers per order created per second. A third of them is busy.
const DRIVERS_PER_RATE: u32 = 8;
/// Timeout, much longer than any order of the load takes.
const END_WAIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// Drivers that accept each offer immediately.
#[derive(Debug)]
struct WillingDrivers;

impl DriverScript for WillingDrivers {
    fn choose_reaction(&self, _driver: &str, _order: &str, _attempt_no: u64) -> DriverChoice {
        DriverChoice { reaction: DriverReaction::Accept, after: Duration::ZERO }
    }

    fn drive_times(&self, order: &str) -> Option<(Duration, Duration)> {
        let trip = ChoiceSeed::new(1, &["trip", order]).into_rng().random_range(TRIP_MS.0..=TRIP_MS.1);
        Some((Duration::ZERO, Duration::from_millis(trip)))
    }
}

/// Running drivers, and a producer. Dropping it stops the drivers.
#[derive(Debug)]
pub(super) struct OrderLoad {
    producer: OrderProducer,
    rate: u32,
    _drivers: RunningDrivers,
}

impl OrderLoad {
    /// Creates the drivers and the producer. `rate` is the number of orders created per second.
    pub(super) async fn prepare(testbed: &Testbed, offers: OfferReceiver, rate: u32) -> anyhow::Result<Self> {
        let count = rate.saturating_mul(DRIVERS_PER_RATE);
        let driver = |n: u32| {
            let north = TOWN.0 + SPREAD_DEGREES * f64::from(n) / f64::from(count);
            SimulatedDriver { id: format!("L-{n:05}"), key: api_keys::generate_key(), at: Point::new(TOWN.1, north) }
        };
        let fleet: Vec<_> = (0..count).map(driver).collect();
        insert_drivers(&testbed.app, &fleet, &[SERVICE_TYPE]).await?;
        let drivers = offers.start(testbed.api.clone(), Box::new(WillingDrivers), &fleet);
        Ok(Self { producer: OrderProducer::hire(testbed, "console").await?, rate, _drivers: drivers })
    }

    /// Creates orders while `meanwhile` runs, and waits until they have ended. Returns problems. `name` is part of the
    /// order ids.
    pub(super) async fn run_while(
        &self,
        db: &Pool,
        name: &str,
        meanwhile: impl Future<Output = ()>,
    ) -> anyhow::Result<Vec<String>> {
        let stop = CancellationToken::new();
        let orders = order_creations(name, self.rate, stop.clone());
        let until_done = async {
            meanwhile.await;
            stop.cancel();
        };
        let ((), mut problems) = tokio::join!(until_done, self.producer.run(orders));
        problems.extend(wait_for_end(db, name).await?);
        Ok(problems)
    }
}

/// Returns orders at a steady pace until `stop`.
fn order_creations(name: &str, rate: u32, stop: CancellationToken) -> impl Iterator<Item = ProducedOrder> {
    let pace = Duration::from_secs(1) / rate;
    (0_u32..)
        .take_while(move |_| !stop.is_cancelled())
        .map(move |n| OrderDraft::new(SERVICE_TYPE, TOWN, "UNPAID").at(pace * n, format!("{name}-{n:06}")))
}

/// Returns the bounds of the ids of orders with this name.
fn id_range(name: &str) -> (String, String) {
    (format!("{name}-"), format!("{name}-~"))
}

/// Waits until all orders with this name have ended. Returns a message with the number of open orders if the wait times
/// out.
async fn wait_for_end(db: &Pool, name: &str) -> anyhow::Result<Option<String>> {
    let (from, to) = id_range(name);
    let deadline = Instant::now() + END_WAIT;
    loop {
        let open: i64 =
            sqlx::query_scalar("SELECT count(*) FROM orders WHERE id > $1 AND id < $2 AND closed_at IS NULL")
                .bind(&from)
                .bind(&to)
                .fetch_one(db)
                .await?;
        if open == 0 {
            return Ok(None);
        }
        if Instant::now() >= deadline {
            return Ok(Some(format!("{open} orders of {name} had not ended {END_WAIT:?} after the last was created")));
        }
        sleep(LOOK).await;
    }
}

/// Returns the lateness of the first attempt of each order with this name, in microseconds. The attempt is due when the
/// order is created. Both times are in whole milliseconds.
pub(super) async fn read_lateness(db: &Pool, name: &str) -> anyhow::Result<Vec<i64>> {
    let (from, to) = id_range(name);
    let lateness = sqlx::query_scalar(
        "SELECT (extract(epoch FROM min(e.at) - o.created_at) * 1000000)::bigint
         FROM orders o JOIN order_events e ON e.order_id = o.id
         WHERE o.id > $1 AND o.id < $2 AND e.reason = 'ATTEMPT_STARTED' AND e.at > now() - interval '1 day'
         GROUP BY o.id, o.created_at",
    );
    Ok(lateness.bind(from).bind(to).fetch_all(db).await?)
}
