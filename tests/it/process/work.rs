//! Workers and API as in production: running together and shut down gracefully.

use serde_json::json;

use super::{assert_all_well, orders};
use crate::support::{Crowd, Fleet, eventually, hire, lasting_transaction, secs, send_until_answered};
use accounts::{api_keys::AccountRole, key_admin};

const MID_FLIGHT: &str = "SELECT count(*) FROM order_events WHERE reason = 'ATTEMPT_STARTED'";

#[tokio::test]
async fn two_workers_and_an_api_share_the_work() {
    // Long enough that drivers accept every order, even on a busy machine.
    let fleet = Fleet::with_lifetime("60s").await;
    let (mut api, base) = fleet.api().await;
    let mut workers = [fleet.worker("w1"), fleet.worker("w2")];
    eventually("both workers show up", || async { fleet.app.core.store.list_workers().await.unwrap().len() == 2 })
        .await;
    hire(&fleet.app, 20).await;
    let _crowd = Crowd::start(&fleet.app);
    let (_, key) =
        key_admin::create_permanent_key(&fleet.app.core.db, "shop", AccountRole::Producer, None).await.unwrap();
    let client = foundation::outbound::build_client(secs(10)).unwrap();
    for _ in 0..60 {
        let created = send_until_answered(
            client
                .post(format!("{base}/api/v1/orders"))
                .bearer_auth(&key)
                .json(&json!({ "service_type": "RIDE", "pickup": { "latitude": -6.2, "longitude": 106.8 } })),
        )
        .await;
        assert_eq!(created.status().as_u16(), 201);
    }
    fleet.at_rest().await;
    assert_eq!(fleet.count("SELECT count(*) FROM orders").await, 60);
    assert_all_well(&fleet).await;
    assert_eq!(fleet.run(&["check", "history"]).code, Some(0));
    assert_eq!(fleet.count("SELECT count(*) FROM reconcile_log WHERE NOT rebuild").await, 0);

    for child in workers.iter_mut().chain([&mut api]) {
        child.terminate();
        assert_eq!(child.ended().await.code(), Some(0));
    }
    for worker in &workers {
        let (settled, _) = worker.settled_and_refused();
        assert!(settled > 10, "one worker did it all: {settled} here");
    }
}

#[tokio::test]
async fn a_terminated_worker_hands_back_what_it_has_in_hand() {
    let fleet = Fleet::with_lifetime("10s").await;
    hire(&fleet.app, 20).await;
    let mut worker = fleet.worker("w1");
    orders(&fleet, "ORD", 60).await;
    fleet.reach(20, MID_FLIGHT).await;
    worker.terminate();
    assert_eq!(worker.ended().await.code(), Some(0));
    let leased: u64 =
        fleet.app.core.store.queue_stats(&jobs::queues::ALL).await.unwrap().iter().map(|s| s.leased).sum();
    assert_eq!(leased, 0, "no job waits for a lease to expire");

    let _crowd = Crowd::start(&fleet.app);
    let _next = fleet.running_worker("w2").await;
    orders(&fleet, "LATER", 20).await;
    fleet.at_rest().await;
    assert_all_well(&fleet).await;
}

#[tokio::test]
async fn worker_drains_while_servers_are_away() {
    let mut fleet = Fleet::with_lifetime("10s").await;
    hire(&fleet.app, 20).await;
    let mut workers = [fleet.worker("w1"), fleet.worker("w2")];
    orders(&fleet, "ORD", 30).await;
    fleet.reach(20, MID_FLIGHT).await;
    fleet.redis.kill().await;
    workers[0].terminate();
    assert_eq!(workers[0].ended().await.code(), Some(0), "without Redis");
    fleet.postgres.stop().await.unwrap();
    workers[1].terminate();
    assert_eq!(workers[1].ended().await.code(), Some(0), "without both");

    fleet.redis.restart().await.unwrap();
    fleet.postgres.restart().await.unwrap();
    let _next = fleet.running_worker("w3").await;
    fleet.reach(30, "SELECT count(*) FROM orders").await;
    let _crowd = Crowd::start(&fleet.app);
    orders(&fleet, "LATER", 20).await;
    fleet.at_rest().await;
    assert_all_well(&fleet).await;
}

/// Follows the instructions for other services in jobs/README.md.
#[tokio::test]
async fn an_order_of_another_service_starts_at_once() {
    let fleet = Fleet::start().await;
    // Drivers decline at random, and a driver who declined gets no second offer.
    hire(&fleet.app, 12).await;
    let _worker = fleet.worker("w1");
    fleet.reach(1, "SELECT count(*) FROM reconcile_log WHERE rebuild").await;
    let store = queue::Store::connect(&fleet.redis.url()).await.unwrap();
    let mut theirs = lasting_transaction(&fleet.postgres).await;
    sqlx::query("SELECT dispatchq_create_order('ORD-1', 'RIDE', -6.2, 106.8)").execute(&mut *theirs).await.unwrap();
    theirs.commit().await.unwrap();
    let first = jobs::DispatchOrder { order: "ORD-1".parse().unwrap(), attempt: 1 };
    store.enqueue(&[jobs::NewJob::now(&first)]).await.unwrap();
    fleet.reach(1, "SELECT count(*) FROM offers").await;
    // The other jobs of the order follow from this one, so the reconciler repairs nothing.
    let _crowd = Crowd::start(&fleet.app);
    fleet.at_rest().await;
    assert_eq!(fleet.count("SELECT count(*) FROM reconcile_log WHERE NOT rebuild").await, 0);
}
