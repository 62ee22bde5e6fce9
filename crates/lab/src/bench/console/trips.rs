//! Drivers: each accepts what it is asked, drives for a while, and is free again.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use rand::RngExt;
use serde_json::json;
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::testbed::api::{ApiAnswer, ApiClient};
use dispatch::{
    accounts::{api_keys::AccountRole, key_admin},
    app::App,
    fleet::drivers::{self, NewDriver},
    ids::{DriverId, OfferId},
    orders::create::OrderLocation,
};
use foundation::db::Pool;

/// How often is looked for new offers, for all drivers together.
const LOOK: Duration = Duration::from_millis(100);
/// Drivers stand on a line of this length north of the town, so that each is near each pickup.
const SPREAD_DEGREES: f64 = 0.02;

/// Keys by driver.
type DriverKeys = HashMap<DriverId, String>;

/// Adds free drivers on a line north of this place, and returns their keys.
pub(super) async fn hire_drivers(
    app: &App,
    service_type: &str,
    from: OrderLocation,
    count: u32,
) -> anyhow::Result<DriverKeys> {
    let new: Vec<_> = (0..count)
        .map(|n| NewDriver {
            id: format!("D-{n:05}").into(),
            service_types: vec![service_type.into()],
            latitude: from.latitude + SPREAD_DEGREES * f64::from(n) / f64::from(count),
            longitude: from.longitude,
            available: true,
            phone: None,
        })
        .collect();
    drivers::import_drivers(&app.db, &new).await?;
    let mut keys = DriverKeys::new();
    for NewDriver { id, .. } in new {
        let (_, key) = key_admin::create_permanent_key(&app.db, &id, AccountRole::Driver, Some(&id)).await?;
        keys.insert(id, key);
    }
    Ok(keys)
}

/// A fleet at work, until it is dropped.
#[derive(Debug)]
pub(super) struct WorkingDrivers {
    stop: CancellationToken,
}

impl WorkingDrivers {
    /// `trip`: the average of their trips.
    pub(super) fn start(db: Pool, api: ApiClient, keys: DriverKeys, trip: Duration) -> Self {
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(answer_offers(
            db,
            api,
            Arc::new(keys),
            trip,
            stop.clone(),
        )));
        Self { stop }
    }
}

impl Drop for WorkingDrivers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn answer_offers(db: Pool, api: ApiClient, keys: Arc<DriverKeys>, trip: Duration, stop: CancellationToken) {
    let (mut seen, tasks) = (HashSet::new(), TaskTracker::new());
    loop {
        // Without a name: it is no statement of the product, and is not counted as one.
        let offers: Vec<(OfferId, String, DriverId)> =
            sqlx::query_as("SELECT id, order_id, driver_id FROM offers WHERE state = 'offered'")
                .fetch_all(&db)
                .await
                .unwrap_or_default();
        for (offer, order, driver) in offers {
            if seen.insert(offer)
                && let Some(key) = keys.get(&driver)
            {
                let took = trip.mul_f64(rand::rng().random_range(0.5..1.5));
                let drive = carry_out(api.clone(), key.clone(), driver, order, offer, took);
                tasks.spawn(stop.clone().run_until_cancelled_owned(drive));
            }
        }
        sleep(LOOK).await;
    }
}

/// An offer that is gone by then is no failure: the driver waits for the next.
async fn carry_out(api: ApiClient, key: String, driver: DriverId, order: String, offer: OfferId, took: Duration) {
    let accept = json!({ "driver_id": driver, "offer_id": offer });
    if api.order_action(&key, &order, "accept", &accept).await != ApiAnswer::Done {
        return;
    }
    sleep(took).await;
    for step in ["pickup", "complete"] {
        let answer = api.order_action(&key, &order, step, &json!({ "driver_id": driver })).await;
        if answer != ApiAnswer::Done {
            tracing::warn!(order.id = order, step, ?answer, "A driver could not go on.");
            return;
        }
    }
}
