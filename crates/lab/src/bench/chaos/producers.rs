//! Producers: they create orders, report payments, and cancel some orders.

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

/// Service types of own drivers: offered to one driver at a time, and to three at once.
pub(in crate::bench) const ONE_BY_ONE: &str = "RIDE";
pub(in crate::bench) const BROADCAST: &str = "DELIVERY";
/// Centre of the city, and half its width in degrees: about 3 km across, so that every place is near enough for a
/// driver.
const CENTRE: (f64, f64) = (-6.2088, 106.8456);
const HALF_WIDTH: f64 = 0.015;

/// Returns a random place in the city: latitude and longitude.
pub(super) fn random_city_place(rng: &mut impl Rng) -> (f64, f64) {
    let mut offset = || rng.random_range(-HALF_WIDTH..HALF_WIDTH);
    (CENTRE.0 + offset(), CENTRE.1 + offset())
}

/// Creates orders at a steady pace. Returns when the work on all of them is done. At most `producers` creations run at
/// once: while all of them wait for an answer, no new orders are created.
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
        // If no producer becomes free before the end, the remaining orders are not created.
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

/// Creates order `n` and performs its producer's actions. One request in four loses its client; half of those clients
/// send the request again to get the answer. The producer is free again after the answer to the creation.
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

/// Creates an order. Returns its id if the producer knows it.
async fn create_order(crowd: &ChaosCrowd, n: u32, rng: &mut impl Rng) -> Option<String> {
    let key = format!("chaos-{}-{n}", crowd.seed);
    let service_type = match rng.random_range(0..10) {
        0..4 => ONE_BY_ONE,
        4..6 => BROADCAST,
        _ => partner::SERVICE_TYPE,
    };
    let pickup = random_city_place(rng);
    let payment_status = if rng.random_bool(0.7) { "UNPAID" } else { "PAID" };
    // Some producers choose the ids of their orders.
    let id = rng.random::<bool>().then(|| format!("order-{key}"));
    let mut body = OrderDraft::new(service_type, pickup, payment_status).to_body(id.as_deref());
    // The customer id makes two orders with one key detectable.
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

/// Sends a request about an order, sometimes with an Idempotency-Key. Returns whether it succeeded.
async fn ask_about(crowd: &ChaosCrowd, what: &'static str, order: &str, body: Value, rng: &mut impl Rng) -> bool {
    let (path, key) = (format!("/orders/{order}/{what}"), format!("{order}-{what}"));
    let idempotency_key = rng.random::<bool>().then_some(key.as_str());
    let request = ChaosRequest { what, path: &path, key: &crowd.key, idempotency_key, body: &body };
    !lose_some(crowd, request, rng).await && matches!(crowd.send_request(request).await, ChaosAnswer::Done(_))
}

/// Hangs up on one request in four. Returns true if the client then does not send the request again.
async fn lose_some(crowd: &ChaosCrowd, request: ChaosRequest<'_>, rng: &mut impl Rng) -> bool {
    if !rng.random_bool(0.25) {
        return false;
    }
    crowd.send_and_hang_up(request).await;
    rng.random()
}
