//! Drivers' apps: they wait for offers, accept, decline, vanish, give back, pick up and complete.

use std::{collections::HashMap, time::Duration};

use anyhow::Context;
use rand::{Rng, RngExt};
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    claims::ClaimLedger,
    client::{ChaosAnswer, ChaosClient, ChaosRequest},
    crowd::{ChaosCrowd, CrowdPlan, random_millis},
    producers::{BROADCAST, ONE_BY_ONE, random_city_place},
};
use crate::testbed::api::{retry_after, sleep_before_retry};
use dispatch::accounts::{
    api_keys::{self, AccountRole},
    key_admin,
};
use foundation::db::Pool;
use partner_sim::seeded_rng::ChoiceSeed;

/// How long an app waits for an offer before it asks again.
const WAIT_SEC: u64 = 10;
const POLL_TIMEOUT: Duration = Duration::from_secs(WAIT_SEC + 5);
const POLL_PAUSE: Duration = Duration::from_millis(500);
/// How long a driver thinks about an offer, which stands for 2 s or more; and how long one is gone who vanishes.
const THINKS_MS: (u64, u64) = (20, 1_200);
const GONE_MS: (u64, u64) = (1_000, 5_000);
/// To the pickup, and from there to the end, in seconds of the order's time.
const APPROACH_S: (u64, u64) = (60, 180);
const TRIP_S: (u64, u64) = (60, 240);

#[derive(Debug, Clone)]
pub(super) struct ChaosDriver {
    id: String,
    /// Its bearer key.
    key: String,
}

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
        db: &Pool,
        plan: CrowdPlan,
        client: ChaosClient,
        ledger: ClaimLedger,
    ) -> anyhow::Result<(Self, JoinSet<()>)> {
        let CrowdPlan { name, seed, speed, drivers } = plan;
        let (_, key) = key_admin::create_permanent_key(db, name, AccountRole::Producer, None).await?;
        let crowd = Self { seed, speed, client, ledger, key, stop: CancellationToken::new() };
        let mut clients = JoinSet::new();
        for driver in insert_drivers(db, seed, drivers).await? {
            clients.spawn(run_driver(crowd.clone(), driver));
        }
        Ok((crowd, clients))
    }
}

/// Adds drivers and their keys in two statements, however many they are.
pub(super) async fn insert_drivers(db: &Pool, seed: u64, count: usize) -> anyhow::Result<Vec<ChaosDriver>> {
    let drivers: Vec<ChaosDriver> =
        (1..=count).map(|n| ChaosDriver { id: format!("chaos-{n:05}"), key: api_keys::generate_key() }).collect();
    let ids: Vec<&str> = drivers.iter().map(|driver| driver.id.as_str()).collect();
    let mut rng = ChoiceSeed::new(seed, &["where drivers wait"]).into_rng();
    let (lats, lngs): (Vec<f64>, Vec<f64>) = ids.iter().map(|_| random_city_place(&mut rng)).unzip();
    sqlx::query(
        "-- insert drivers of a chaos run
         INSERT INTO drivers (id, service_types, lat, lng)
         SELECT id, ARRAY[$2, $3], lat, lng FROM unnest($1::text[], $4::float8[], $5::float8[]) AS d (id, lat, lng)",
    )
    .bind(&ids)
    .bind(ONE_BY_ONE)
    .bind(BROADCAST)
    .bind(&lats)
    .bind(&lngs)
    .execute(db)
    .await
    .context("cannot add the drivers")?;
    let key_ids: Vec<Uuid> = drivers.iter().map(|_| Uuid::now_v7()).collect();
    let hashes: Vec<Vec<u8>> = drivers.iter().map(|driver| api_keys::hash_key(&driver.key)).collect();
    sqlx::query(
        "-- insert keys of drivers of a chaos run
         INSERT INTO api_keys (id, name, sha256, role, driver_id)
         SELECT key_id, 'chaos ' || driver_id, sha256, 'driver', driver_id
         FROM unnest($1::uuid[], $2::text[], $3::bytea[]) AS k (key_id, driver_id, sha256)",
    )
    .bind(&key_ids)
    .bind(&ids)
    .bind(&hashes)
    .execute(db)
    .await
    .context("cannot add the drivers' keys")?;
    Ok(drivers)
}

/// One driver's day, until the run is over.
pub(super) async fn run_driver(crowd: ChaosCrowd, driver: ChaosDriver) {
    let mut answered: HashMap<Uuid, ()> = HashMap::new();
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
        answered.retain(|id, ()| offers.iter().any(|offer| offer.offer_id == *id));
        for offer in offers {
            if answered.insert(offer.offer_id, ()).is_none() {
                handle_offer(&crowd, &driver, &offer).await;
            }
        }
    }
}

/// Live offers, as soon as they are other than those that were answered. `Err`: not now; the app is told how long to wait.
async fn poll_offers(
    crowd: &ChaosCrowd,
    driver: &ChaosDriver,
    answered: &HashMap<Uuid, ()>,
) -> Result<Vec<PolledOffer>, Option<Duration>> {
    let known: Vec<String> = answered.keys().map(Uuid::to_string).collect();
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

/// One offer, to the end of the trip if it comes to that.
async fn handle_offer(crowd: &ChaosCrowd, driver: &ChaosDriver, offer: &PolledOffer) {
    let mut rng = crowd.rng_for(&["offer", &driver.id, &offer.order_id, &offer.attempt_no.to_string()]);
    crowd.sleep_unless_stopped(random_millis(&mut rng, THINKS_MS.0, THINKS_MS.1)).await;
    match rng.random_range(0..100) {
        0..8 => {}
        8..16 => {
            let path = format!("/orders/{}/decline", offer.order_id);
            let body = json!({ "driver_id": driver.id, "offer_id": offer.offer_id, "reason": "too far" });
            crowd
                .send_request(ChaosRequest {
                    what: "decline",
                    path: &path,
                    key: &driver.key,
                    idempotency_key: None,
                    body: &body,
                })
                .await;
        }
        draw => {
            // Some hang up, some vanish for a while after they did; all of them ask again in the end.
            if accept_offer(crowd, driver, offer, draw < 28, draw < 22, &mut rng).await {
                drive_trip(crowd, driver, &offer.order_id, &mut rng).await;
            }
        }
    }
}

async fn accept_offer(
    crowd: &ChaosCrowd,
    driver: &ChaosDriver,
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

async fn drive_trip(crowd: &ChaosCrowd, driver: &ChaosDriver, order: &str, rng: &mut impl Rng) {
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

/// Returns whether it was done.
async fn post_trip_action(crowd: &ChaosCrowd, driver: &ChaosDriver, order: &str, action: &'static str) -> bool {
    let path = format!("/orders/{order}/{action}");
    let body = json!({ "driver_id": driver.id });
    let request = ChaosRequest { what: action, path: &path, key: &driver.key, idempotency_key: None, body: &body };
    matches!(crowd.send_request(request).await, ChaosAnswer::Done(_))
}
