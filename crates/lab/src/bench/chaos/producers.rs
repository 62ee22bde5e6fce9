//! Producers: they create orders, say that they are paid, and cancel some.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use rand::{Rng, RngExt};
use serde_json::{Value, json};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::Instant,
};

use super::{
    client::{ChaosAnswer, ChaosRequest},
    crowd::{ChaosCrowd, random_millis},
};
use crate::testbed::{partner, producer::OrderDraft};

/// Served by own drivers: asked one by one, and three at once.
pub(in crate::bench) const ONE_BY_ONE: &str = "RIDE";
pub(in crate::bench) const BROADCAST: &str = "DELIVERY";
/// The middle of the city, and half its width in degrees: some 3 km, so that all of it is near enough for a driver.
const CENTRE: (f64, f64) = (-6.2088, 106.8456);
const HALF_WIDTH: f64 = 0.015;

/// A place in the city: latitude and longitude.
pub(super) fn random_city_place(rng: &mut impl Rng) -> (f64, f64) {
    let mut offset = || rng.random_range(-HALF_WIDTH..HALF_WIDTH);
    (CENTRE.0 + offset(), CENTRE.1 + offset())
}

/// Creates orders at an even pace, each with a life of its own; returns when all of them have been cared for. So many
/// producers as there are create at once: while all of them wait for an answer there are no new orders.
pub(in crate::bench) async fn create_orders(
    crowd: ChaosCrowd,
    rate: NonZeroU32,
    producers: Option<NonZeroU32>,
    length: Duration,
) {
    let start = Instant::now();
    let pause = Duration::from_secs(1) / rate.get();
    let places = Arc::new(Semaphore::new(producers.map_or(Semaphore::MAX_PERMITS, |count| count.get() as usize)));
    let mut lives = JoinSet::new();
    let mut n = 0_u32;
    while pause * n < length {
        tokio::time::sleep_until(start + pause * n).await;
        // Without a place until the end, the orders that are left are not created.
        let Ok(Ok(place)) = tokio::time::timeout_at(start + length, places.clone().acquire_owned()).await else {
            break;
        };
        let crowd = crowd.clone();
        lives.spawn(async move { care_for_order(&crowd, n, place).await });
        while lives.try_join_next().is_some() {}
        n += 1;
    }
    lives.join_all().await;
}

/// Creates order `n` and does with it what its producer wants. One in four requests loses its client on the way; half of
/// those clients ask again and want to know. The producer's place is free once it was told of the order.
async fn care_for_order(crowd: &ChaosCrowd, n: u32, place: OwnedSemaphorePermit) {
    let mut rng = crowd.rng_for(&["order", &n.to_string()]);
    let created = create_order(crowd, n, &mut rng).await;
    drop(place);
    let Some(order) = created else { return };
    if rng.random_bool(0.5) {
        crowd.sleep_unless_stopped(random_millis(&mut rng, 0, 8_000)).await;
        let body = json!({ "event_id": format!("{order}-paid"), "payment_status": "PAID" });
        if ask_about(crowd, "payment", &order, body, &mut rng).await {
            crowd.ledger.lock_claims().paid.push(order.clone());
        }
    }
    if rng.random_bool(0.25) {
        crowd.sleep_unless_stopped(random_millis(&mut rng, 0, 6_000)).await;
        if ask_about(crowd, "cancel", &order, json!({ "reason": "changed my mind" }), &mut rng).await {
            crowd.ledger.lock_claims().cancelled.push(order);
        }
    }
}

/// Returns the order's id, if the producer knows it.
async fn create_order(crowd: &ChaosCrowd, n: u32, rng: &mut impl Rng) -> Option<String> {
    let key = format!("chaos-{}-{n}", crowd.seed);
    let service_type = match rng.random_range(0..10) {
        0..4 => ONE_BY_ONE,
        4..6 => BROADCAST,
        _ => partner::SERVICE_TYPE,
    };
    let pickup = random_city_place(rng);
    let payment_status = if rng.random_bool(0.7) { "UNPAID" } else { "PAID" };
    // Some producers give their orders ids of their own.
    let id = rng.random::<bool>().then(|| format!("order-{key}"));
    let mut body = OrderDraft::new(service_type, pickup, payment_status).to_body(id.as_deref());
    // So that two orders of one key would be seen.
    body["customer_id"] = json!(key);
    let request =
        ChaosRequest { what: "create", path: "/orders", key: &crowd.key, idempotency_key: Some(&key), body: &body };
    if lose_some(crowd, request, rng).await {
        return None;
    }
    let ChaosAnswer::Done(answer) = crowd.send_request(request).await else { return None };
    let order = answer["order_id"].as_str().unwrap_or_default().to_owned();
    crowd.ledger.lock_claims().created.push((key, order.clone()));
    Some(order)
}

/// Sends a request about an order, some of them with an Idempotency-Key. Returns whether it was answered with success.
async fn ask_about(crowd: &ChaosCrowd, what: &'static str, order: &str, body: Value, rng: &mut impl Rng) -> bool {
    let (path, key) = (format!("/orders/{order}/{what}"), format!("{order}-{what}"));
    let idempotency_key = rng.random::<bool>().then_some(key.as_str());
    let request = ChaosRequest { what, path: &path, key: &crowd.key, idempotency_key, body: &body };
    !lose_some(crowd, request, rng).await && matches!(crowd.send_request(request).await, ChaosAnswer::Done(_))
}

/// Hangs up on one request in four. Returns whether the client is content with that and does not ask again.
async fn lose_some(crowd: &ChaosCrowd, request: ChaosRequest<'_>, rng: &mut impl Rng) -> bool {
    if !rng.random_bool(0.25) {
        return false;
    }
    crowd.send_and_hang_up(request).await;
    rng.random()
}
