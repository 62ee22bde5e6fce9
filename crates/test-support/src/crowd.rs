//! Drivers that answer offers without the test, for tests of real processes.

use std::collections::HashSet;

use futures_util::{StreamExt, stream};
use tokio_util::sync::CancellationToken;

use crate::{id, millis, update_order};
use app::App;
use model::{
    decide::actions,
    ids::{DriverId, OfferId},
};
use orders::fleet::drivers::{self, NewDriver};

/// Maximum number of drivers that answer at the same time.
const AT_ONCE: usize = 8;

/// Creates free drivers near every pickup.
pub async fn hire(app: &App, size: usize) {
    let new: Vec<_> = (0..size)
        .map(|n| NewDriver {
            id: format!("D{n}").into(),
            service_types: vec!["RIDE".into()],
            latitude: -6.2,
            longitude: 106.8,
            available: true,
            phone: None,
            name: None,
            skills: None,
        })
        .collect();
    drivers::import_drivers(&app.core.db, &new).await.unwrap();
}

/// All drivers, which work until this is dropped. Of ten offers they accept six, decline two, and let two expire; trips
/// end at once.
#[derive(Debug)]
pub struct Crowd {
    stop: CancellationToken,
}

impl Crowd {
    pub fn start(app: &App) -> Self {
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

/// Answers offers concurrently. Servers may be down: a failed end of a trip is retried, and an offer expires when its
/// answer fails.
async fn work(app: App) {
    let mut answered = HashSet::new();
    loop {
        let offers: Vec<(OfferId, String, DriverId)> =
            sqlx::query_as("SELECT id, order_id, driver_id FROM offers WHERE state = 'offered'")
                .fetch_all(&app.core.db)
                .await
                .unwrap_or_default();
        let new: Vec<_> = offers.into_iter().filter(|(offer, ..)| answered.insert(*offer)).collect();
        let answers = new.into_iter().map(|(offer, order, driver)| answer(&app, offer, order, driver));
        stream::iter(answers).for_each_concurrent(AT_ONCE, |answer| answer).await;

        let trips: Vec<(String, DriverId)> =
            sqlx::query_as("SELECT id, driver_id FROM orders WHERE status IN ('DRIVER_ASSIGNED', 'PICKED_UP')")
                .fetch_all(&app.core.db)
                .await
                .unwrap_or_default();
        let ends = trips.into_iter().map(|(order, driver)| end_trip(&app, order, driver));
        stream::iter(ends).for_each_concurrent(AT_ONCE, |end| end).await;
        tokio::time::sleep(millis(50)).await;
    }
}

async fn answer(app: &App, offer: OfferId, order: String, driver: DriverId) {
    let _ = match offer.as_uuid().as_u128() % 10 {
        0..6 => update_order(&app.orders, &id(&order), |s| actions::accept_offer(s, &driver, offer)).await,
        // D0 never declines, so no order is declined by all drivers.
        6..8 if driver.as_str() != "D0" => {
            update_order(&app.orders, &id(&order), |s| actions::decline_offer(s, &driver, offer, None)).await
        }
        _ => return,
    };
}

async fn end_trip(app: &App, order: String, driver: DriverId) {
    let order = id(&order);
    let _ = update_order(&app.orders, &order, |s| actions::record_pickup(s, &driver)).await;
    let _ = update_order(&app.orders, &order, |s| actions::complete_trip(s, &driver)).await;
}
