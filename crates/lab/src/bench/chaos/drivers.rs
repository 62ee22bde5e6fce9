//! Simulated driver apps: they wait for offers, accept, decline, disappear, give back, pick up and complete.

use std::{collections::HashSet, time::Duration};

use geo::Point;
use rand::{Rng, RngExt};
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    client::{ChaosAnswer, ChaosClient, ChaosRequest},
    crowd::{ChaosCrowd, CrowdPlan, random_millis},
    producers::{BROADCAST, ONE_BY_ONE, random_city_place},
};
use crate::testbed::{
    api::{retry_after, sleep_before_retry},
    drivers::{SimulatedDriver, insert_drivers},
};
use accounts::{
    api_keys::{self, AccountRole},
    key_admin,
};
use app::App;
use partner_sim::seeded_rng::ChoiceSeed;

/// Seconds that an app waits for an offer before it polls again.
const WAIT_SEC: u64 = 10;
const POLL_TIMEOUT: Duration = Duration::from_secs(WAIT_SEC + 5);
const POLL_PAUSE: Duration = Duration::from_millis(500);
/// Time in milliseconds that a driver takes to answer an offer (an offer lives 2 s or more), and time that a
/// disappeared driver stays away.
const THINKS_MS: (u64, u64) = (20, 1_200);
const GONE_MS: (u64, u64) = (1_000, 5_000);
/// Time to the pickup, and from there to the end, in simulated seconds.
const APPROACH_S: (u64, u64) = (60, 180);
const TRIP_S: (u64, u64) = (60, 240);

#[derive(Debug, Clone, Deserialize)]
struct PolledOffer {
    offer_id: Uuid,
    order_id: String,
    attempt_no: i64,
}

#[derive(Debug, Default, Deserialize)]
struct PolledOffers {
    offers: Vec<PolledOffer>,
}

impl ChaosCrowd {
    /// Creates the producer's key and the drivers, and starts the drivers. Dropping the set stops them.
    pub(in crate::bench) async fn send_in(
        app: &App,
        plan: CrowdPlan,
        client: ChaosClient,
    ) -> anyhow::Result<(Self, JoinSet<()>)> {
        let CrowdPlan { name, seed, speed, drivers } = plan;
        let (_, key) = key_admin::create_permanent_key(&app.core.db, name, AccountRole::Producer, None).await?;
        let ledger = client.ledger().clone();
        let crowd = Self { seed, speed, client, ledger, key, stop: CancellationToken::new() };
        let mut clients = JoinSet::new();
        let fleet = place_drivers(seed, drivers);
        insert_drivers(app, &fleet, &[ONE_BY_ONE, BROADCAST]).await?;
        for driver in fleet {
            clients.spawn(run_driver(crowd.clone(), driver));
        }
        Ok((crowd, clients))
    }
}

/// Places drivers at random in the city.
fn place_drivers(seed: u64, count: usize) -> Vec<SimulatedDriver> {
    let mut rng = ChoiceSeed::new(seed, &["where drivers wait"]).into_rng();
    (1..=count)
        .map(|n| {
            let (latitude, longitude) = random_city_place(&mut rng);
            let at = Point::new(longitude, latitude);
            SimulatedDriver { id: format!("chaos-{n:05}"), key: api_keys::generate_key(), at }
        })
        .collect()
}

/// Runs one driver until the run ends.
async fn run_driver(crowd: ChaosCrowd, driver: SimulatedDriver) {
    let mut answered: HashSet<Uuid> = HashSet::new();
    while !crowd.stop.is_cancelled() {
        let polled = tokio::select! {
            polled = poll_offers(&crowd, &driver, &answered) => polled,
            () = crowd.stop.cancelled() => return,
        };
        let offers = match polled {
            Ok(offers) => offers,
            Err(told) => {
                tokio::select! {
                    () = sleep_before_retry(POLL_PAUSE, told) => continue,
                    () = crowd.stop.cancelled() => return,
                }
            }
        };
        answered.retain(|id| offers.iter().any(|offer| offer.offer_id == *id));
        for offer in offers {
            if answered.insert(offer.offer_id) {
                handle_offer(&crowd, &driver, &offer).await;
            }
        }
    }
}

/// Polls for live offers until they differ from the answered ones. `Err` means that the request failed, with the
/// Retry-After if there was one.
async fn poll_offers(
    crowd: &ChaosCrowd,
    driver: &SimulatedDriver,
    answered: &HashSet<Uuid>,
) -> Result<Vec<PolledOffer>, Option<Duration>> {
    let known: Vec<String> = answered.iter().map(Uuid::to_string).collect();
    let base = crowd.client.next_base();
    let url = format!("{base}/api/v1/drivers/{}/offers?wait_sec={WAIT_SEC}&known={}", driver.id, known.join(","));
    let request = crowd.client.http_client().get(url).bearer_auth(&driver.key).timeout(POLL_TIMEOUT);
    let answer = request.send().await.map_err(|_| None)?;
    if matches!(answer.status().as_u16(), 401 | 403 | 404) {
        crowd.ledger.lock_claims().wrong.push(format!("poll of {}: answered {}", driver.id, answer.status()));
    }
    crowd.ledger.record_failure("poll", answer.status());
    let told = retry_after(&answer);
    let offers: PolledOffers = answer.error_for_status().map_err(|_| told)?.json().await.map_err(|_| None)?;
    Ok(offers.offers)
}

/// Handles one offer, including the trip if the driver gets the order.
async fn handle_offer(crowd: &ChaosCrowd, driver: &SimulatedDriver, offer: &PolledOffer) {
    let mut rng = crowd.rng_for(&["offer", &driver.id, &offer.order_id, &offer.attempt_no.to_string()]);
    crowd.sleep_unless_stopped(random_millis(&mut rng, THINKS_MS.0, THINKS_MS.1)).await;
    match rng.random_range(0..100) {
        0..8 => {}
        8..16 => {
            let path = format!("/orders/{}/decline", offer.order_id);
            let body = json!({ "driver_id": driver.id, "offer_id": offer.offer_id, "reason": "too far" });
            let (what, key) = ("decline", &driver.key);
            crowd.send_request(ChaosRequest { what, path: &path, key, idempotency_key: None, body: &body }).await;
        }
        draw => {
            // Some drivers hang up, and some then stay away for a while. All of them send the request again in the end.
            if accept_offer(crowd, driver, offer, draw < 28, draw < 22, &mut rng).await {
                drive_trip(crowd, driver, &offer.order_id, &mut rng).await;
            }
        }
    }
}

async fn accept_offer(
    crowd: &ChaosCrowd,
    driver: &SimulatedDriver,
    offer: &PolledOffer,
    hangs_up: bool,
    vanishes: bool,
    rng: &mut impl Rng,
) -> bool {
    let path = format!("/orders/{}/accept", offer.order_id);
    let body = json!({ "driver_id": driver.id, "offer_id": offer.offer_id });
    let request = ChaosRequest { what: "accept", path: &path, key: &driver.key, idempotency_key: None, body: &body };
    if hangs_up {
        crowd.send_and_hang_up(request).await;
    }
    if vanishes {
        crowd.sleep_unless_stopped(random_millis(rng, GONE_MS.0, GONE_MS.1)).await;
    }
    let ChaosAnswer::Done(_) = crowd.send_request(request).await else { return false };
    crowd.ledger.lock_claims().accepted.push((offer.order_id.clone(), offer.offer_id, driver.id.clone()));
    true
}

async fn drive_trip(crowd: &ChaosCrowd, driver: &SimulatedDriver, order: &str, rng: &mut impl Rng) {
    crowd.sleep_unless_stopped(crowd.orders_time(rng, APPROACH_S)).await;
    let who = || (order.to_owned(), driver.id.clone());
    if rng.random_bool(0.1) {
        if post_trip_action(crowd, driver, order, "driver-cancel").await {
            crowd.ledger.lock_claims().given_back.push(who());
        }
        return;
    }
    if !post_trip_action(crowd, driver, order, "pickup").await {
        return;
    }
    crowd.ledger.lock_claims().picked_up.push(who());
    crowd.sleep_unless_stopped(crowd.orders_time(rng, TRIP_S)).await;
    if post_trip_action(crowd, driver, order, "complete").await {
        crowd.ledger.lock_claims().completed.push(who());
    }
}

/// Posts an action of the trip. Returns whether it succeeded.
async fn post_trip_action(crowd: &ChaosCrowd, driver: &SimulatedDriver, order: &str, action: &'static str) -> bool {
    let path = format!("/orders/{order}/{action}");
    let body = json!({ "driver_id": driver.id });
    let request = ChaosRequest { what: action, path: &path, key: &driver.key, idempotency_key: None, body: &body };
    matches!(crowd.send_request(request).await, ChaosAnswer::Done(_))
}
