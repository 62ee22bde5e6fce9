//! Places of delivery that the endpoints of one producer share.

use std::sync::Arc;

use serde_json::json;
use tokio::task::JoinSet;

use super::{ENDPOINTS, Shop};
use accounts::api_keys::AccountRole;
use queue::{LeasedJob, Outcome};
use test_support::{Receiver, TestApp, eventually, ride};

const ORDERS: usize = 4;
const ENDPOINTS_OF_SHOP: usize = 10;

/// Returns `count` leased jobs of messages.
async fn take_messages(t: &TestApp, count: usize) -> Vec<LeasedJob> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let jobs = t.take().await;
        assert!(!jobs.is_empty(), "{} of {count} messages", taken.len());
        taken.extend(jobs.into_iter().filter(|leased| leased.delivery.queue == jobs::queues::NOTIFY));
    }
    taken
}

#[tokio::test]
async fn hanging_endpoints_hold_up_no_other_producer() {
    let (shop, well) = (Arc::new(Shop::open().await), Receiver::start().await);
    for n in 0..ENDPOINTS_OF_SHOP {
        shop.create(&format!("/{n}"), &["order.created"]).await;
    }
    let other = shop.t.key_named("other", AccountRole::Producer, None).await;
    let endpoint = json!({ "url": well.url("/well"), "events": ["order.created"] });
    assert_eq!(shop.api.post(ENDPOINTS, &other, endpoint).await.status, 201);
    for n in 0..ORDERS {
        shop.t.order(&format!("ORD-{n}")).await;
    }
    shop.receiver.hold();
    let mut running = JoinSet::new();
    for leased in take_messages(&shop.t, ORDERS * ENDPOINTS_OF_SHOP).await {
        let shop = shop.clone();
        running.spawn(async move { shop.t.perform(&leased).await });
    }
    let parked = "SELECT count(*) FROM outbox WHERE attempts = 0 AND next_attempt_at > created_at";
    let hanging = || shop.receiver.received().len();
    eventually("each message hangs or waits for a place", async || {
        hanging() + usize::try_from(shop.t.count(parked).await).unwrap() == ORDERS * ENDPOINTS_OF_SHOP
    })
    .await;
    assert!((ENDPOINTS_OF_SHOP..=16).contains(&hanging()), "{} of 32 places", hanging());

    assert_eq!(shop.api.post("/api/v1/orders", &other, ride()).await.status, 201);
    let message = take_messages(&shop.t, 1).await.remove(0);
    assert_eq!(shop.t.perform(&message).await, Outcome::done());
    assert_eq!(well.received().len(), 1);
    shop.receiver.release();
}
