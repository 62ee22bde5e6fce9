//! Drivers who answer offers by themselves, for tests of real processes.

use std::collections::HashSet;

use dispatch::{
    app::App,
    fleet::drivers::{self, NewDriver},
    ids::{DriverId, OfferId},
    orders::{actions, update::update_order},
};
use tokio_util::sync::CancellationToken;

use super::{id, millis};

/// Free drivers near every pickup.
pub(crate) async fn hire(app: &App, size: usize) {
    let new: Vec<_> = (0..size)
        .map(|n| NewDriver {
            id: format!("D{n}").into(),
            service_types: vec!["RIDE".into()],
            latitude: -6.2,
            longitude: 106.8,
            available: true,
            phone: None,
        })
        .collect();
    drivers::import_drivers(&app.db, &new).await.unwrap();
}

/// All drivers, at work until this is dropped. Of ten offers they accept six, decline two, and let two lapse; trips end
/// at once.
pub(crate) struct Crowd {
    stop: CancellationToken,
}

impl Crowd {
    pub(crate) fn start(app: &App) -> Self {
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(work(app.clone())));
        Self { stop }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Servers may be away meanwhile: what fails is tried again.
async fn work(app: App) {
    let mut answered = HashSet::new();
    loop {
        let offers: Vec<(OfferId, String, DriverId)> =
            sqlx::query_as("SELECT id, order_id, driver_id FROM offers WHERE state = 'offered'")
                .fetch_all(&app.db)
                .await
                .unwrap_or_default();
        for (offer, order, driver) in offers {
            if !answered.insert(offer) {
                continue;
            }
            let _ = match offer.as_uuid().as_u128() % 10 {
                0..6 => update_order(&app, &id(&order), |s| actions::accept_offer(s, &driver, offer)).await,
                // One driver never declines, so that no order is declined by all.
                6..8 if driver.as_str() != "D0" => {
                    update_order(&app, &id(&order), |s| actions::decline_offer(s, &driver, offer, None)).await
                }
                _ => continue,
            };
        }
        let trips: Vec<(String, DriverId)> =
            sqlx::query_as("SELECT id, driver_id FROM orders WHERE status IN ('DRIVER_ASSIGNED', 'PICKED_UP')")
                .fetch_all(&app.db)
                .await
                .unwrap_or_default();
        for (order, driver) in trips {
            let _ = update_order(&app, &id(&order), |s| actions::record_pickup(s, &driver)).await;
            let _ = update_order(&app, &id(&order), |s| actions::complete_trip(s, &driver)).await;
        }
        tokio::time::sleep(millis(20)).await;
    }
}
