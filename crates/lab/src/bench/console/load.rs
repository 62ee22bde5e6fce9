//! A steady load: orders of own drivers, created over HTTP, each driven to its end within seconds.
//!
//! They are of a service type and a town of their own. A driver who is free again is asked for the oldest order that waits nearby, and
//! the thousands of filled orders are not to be looked through for it.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::trips::{WorkingDrivers, hire_drivers};
use crate::testbed::{
    api::ApiClient,
    producer::{OrderProducer, ProducedOrder},
};
use dispatch::{
    accounts::{api_keys::AccountRole, key_admin},
    app::App,
    orders::create::OrderLocation,
};
use foundation::db::Pool;

const SERVICE_TYPE: &str = "DELIVERY";
const TOWN: OrderLocation = OrderLocation { latitude: -6.9, longitude: 107.6 };
/// The average of all trips.
const TRIP: Duration = Duration::from_secs(2);
/// Drivers for each order created per second. A third of them is busy.
const DRIVERS_PER_RATE: u32 = 8;
/// Far longer than any order of the load lives.
const END_WAIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// Drivers at work, and a producer. Dropping it ends their work.
#[derive(Debug)]
pub(super) struct OrderLoad {
    producer: OrderProducer,
    rate: u32,
    _drivers: WorkingDrivers,
}

impl OrderLoad {
    /// `rate`: orders created per second.
    pub(super) async fn prepare(app: &App, api: &ApiClient, rate: u32) -> anyhow::Result<Self> {
        let drivers = hire_drivers(app, SERVICE_TYPE, TOWN, rate.saturating_mul(DRIVERS_PER_RATE)).await?;
        let (_, key) = key_admin::create_permanent_key(&app.db, "console", AccountRole::Producer, None).await?;
        Ok(Self {
            producer: OrderProducer::new(api.clone(), key),
            rate,
            _drivers: WorkingDrivers::start(app.db.clone(), api.clone(), drivers, TRIP),
        })
    }

    /// Creates orders while `meanwhile` goes on, and waits until they have ended. Returns what `meanwhile` did, and what went wrong
    /// with the orders. `name` makes them its own.
    pub(super) async fn run_while<T>(
        &self,
        db: &Pool,
        name: &str,
        meanwhile: impl Future<Output = T>,
    ) -> anyhow::Result<(T, Vec<String>)> {
        let stop = CancellationToken::new();
        let orders = order_creations(name, self.rate, stop.clone());
        let until_done = async {
            let done = meanwhile.await;
            stop.cancel();
            done
        };
        let (done, mut problems) = tokio::join!(until_done, self.producer.run(orders));
        problems.extend(wait_for_end(db, name).await?);
        Ok((done, problems))
    }
}

/// Orders at an even pace, until they are told to stop.
fn order_creations(name: &str, rate: u32, stop: CancellationToken) -> impl Iterator<Item = ProducedOrder> {
    let pace = Duration::from_secs(1) / rate;
    (0_u32..).take_while(move |_| !stop.is_cancelled()).map(move |n| {
        let id = format!("{name}-{n:06}");
        let pickup = json!({ "latitude": TOWN.latitude, "longitude": TOWN.longitude });
        let body = json!({ "order_id": id, "service_type": SERVICE_TYPE, "pickup": pickup });
        ProducedOrder { id, at: pace * n, body }
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_come_at_an_even_pace_until_they_are_told_to_stop() {
        let stop = CancellationToken::new();
        let mut orders = order_creations("with-1", 10, stop.clone());
        let (from, to) = id_range("with-1");
        for n in 0..3 {
            let order = orders.next().unwrap();
            assert_eq!(order.at, Duration::from_millis(100) * n);
            assert!(from < order.id && order.id < to && order.body["order_id"] == order.id.as_str(), "{order:?}");
        }
        assert!("with-10-000001" > to.as_str(), "another's");
        stop.cancel();
        assert!(orders.next().is_none());
    }
}
