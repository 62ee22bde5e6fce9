//! A steady load: orders of own drivers, created over HTTP, each driven to its end within seconds.
//!
//! They are of a service type and a town of their own. A free driver is asked for the oldest order that waits nearby, and must not look
//! through the thousands of filled orders for it.

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
/// Latitude and longitude.
const TOWN: (f64, f64) = (-6.9, 107.6);
/// Drivers stand on a line of this length north of the town, so that each is near each pickup.
const SPREAD_DEGREES: f64 = 0.02;
/// Bounds of all trips.
const TRIP_MS: (u64, u64) = (1_000, 3_000);
/// Drivers for each order created per second. A third of them is busy.
const DRIVERS_PER_RATE: u32 = 8;
/// Far longer than any order of the load lives.
const END_WAIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// Drivers accept each offer at once.
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

/// Drivers at work, and a producer. Dropping it ends their work.
#[derive(Debug)]
pub(super) struct OrderLoad {
    producer: OrderProducer,
    rate: u32,
    _drivers: RunningDrivers,
}

impl OrderLoad {
    /// `rate`: orders created per second.
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

    /// Creates orders while `meanwhile` runs, and waits until they have ended. Returns what went wrong with them. `name` is part of
    /// their ids.
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

/// Orders at an even pace, until they are told to stop.
fn order_creations(name: &str, rate: u32, stop: CancellationToken) -> impl Iterator<Item = ProducedOrder> {
    let pace = Duration::from_secs(1) / rate;
    (0_u32..)
        .take_while(move |_| !stop.is_cancelled())
        .map(move |n| OrderDraft::new(SERVICE_TYPE, TOWN, "UNPAID").at(pace * n, format!("{name}-{n:06}")))
}

/// Ids of the orders of this name lie between these.
fn id_range(name: &str) -> (String, String) {
    (format!("{name}-"), format!("{name}-~"))
}

/// Waits until every order of this name has ended. Returns a line if some do not.
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

/// Returns how late the first attempt of each order of this name began, in microseconds. It is due when the order is created; Postgres
/// dates both in whole milliseconds.
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
