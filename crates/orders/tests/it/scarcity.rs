//! More orders than drivers: the cost of waiting, and how soon a free driver gets the next order.
//!
//! `meanwhile`: changes while a free driver is being asked.

mod meanwhile;

use tokio::task::JoinSet;

use foundation::{queue_pauses, staff_actions::ActionAuthor};
use maintenance::recovery::reconciler;
use model::{
    decide::actions,
    ids::{DriverId, LatLng},
    order::OfferState,
};
use orders::fleet::{
    driver_index,
    drivers::{self, DriverFix},
    waiting_orders,
};
use test_support::{TestApp, by, costs::count_statements, eventually, millis, retry_as_shipped, secs};
use workers::registry::build_registry;

const STATEMENTS: &str = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements s
     JOIN pg_database d ON d.oid = s.dbid AND d.datname = current_database()
     WHERE query LIKE '-- %'";
const FAR_AWAY: LatLng = LatLng::new(-7.5, 110.8);
/// Pickup of all orders.
const PICKUP: LatLng = LatLng::new(-6.2088, 106.8456);

/// Creates these orders one second apart. None of them finds a driver.
async fn wait_for_drivers(t: &TestApp, orders: &[&str]) {
    for order in orders {
        t.order(order).await;
        t.run_due().await;
        t.advance(secs(1)).await;
    }
}

/// Runs all due jobs concurrently, as a busy worker does.
async fn run_due_together(t: &TestApp) -> usize {
    let leased = t.take().await;
    let mut performed = JoinSet::new();
    for (n, job) in leased.iter().enumerate() {
        let (app, delivery) = (t.app.clone(), job.delivery.clone());
        performed.spawn(async move { (n, build_registry(&app).perform(delivery).await) });
    }
    while let Some(done) = performed.join_next().await {
        let (n, outcome) = done.unwrap();
        t.settle(&leased[n], outcome).await;
    }
    leased.len()
}

/// Moves a driver, as a position from the driver's app does.
async fn move_driver(t: &TestApp, driver: &str, to: LatLng) {
    let place = drivers::move_to(&t.app.core.db, &driver.into(), DriverFix { place: to, at: None })
        .await
        .unwrap()
        .unwrap()
        .place;
    driver_index::upsert_driver(&t.app.core, &place).await;
}

async fn match_drivers(t: &TestApp) -> usize {
    waiting_orders::match_freed_drivers(&t.app.orders).await.unwrap()
}

async fn asked(t: &TestApp, order: &str) -> Vec<DriverId> {
    t.live_offers(order).await.into_iter().map(|offer| offer.driver_id).collect()
}

#[tokio::test]
async fn waiting_order_is_searched_every_15_s() {
    let t = TestApp::with(retry_as_shipped).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let waiting = t.dump().await;
    let ran = t.run_for(secs(600)).await;
    assert_eq!(ran.iter().filter(|ran| ran.id == "dispatch:ORD-1:1").count(), 40);
    assert_eq!(t.dump().await, waiting);
    assert_eq!(t.snapshot("ORD-1").await.order.round, 2);
    t.assert_sound().await;

    t.drivers(&[("D1", 100.0)]).await;
    t.run_for(secs(15)).await;
    assert_eq!(t.asked("ORD-1").await, "D1");
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED", "SEARCH_AGAIN", "ATTEMPT_STARTED"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn cost_of_a_waiting_order_stays_constant() {
    let mut t = TestApp::with(retry_as_shipped).await;
    count_statements(&mut t.postgres).await;
    let mut costs = Vec::new();
    let mut created = 0;
    for waiting in [50, 200] {
        for n in created..waiting {
            t.order(&format!("ORD-{n:03}")).await;
        }
        created = waiting;
        // No order has found a driver, and all searches are due at the same time.
        t.run_due().await;
        t.advance(secs(15)).await;
        t.run_due().await;
        t.advance(secs(15)).await;
        let before = t.dump().await;
        t.count("SELECT count(*) FROM pg_stat_statements_reset()").await;
        assert_eq!(run_due_together(&t).await, waiting);
        costs.push(t.count(STATEMENTS).await as f64 / waiting as f64);
        assert_eq!(t.dump().await, before, "{waiting} orders that wait write nothing");
    }
    assert!(costs[1] <= costs[0] && costs[1] < 0.2, "statements for each order and search: {costs:?}");
    t.assert_sound().await;
}

#[tokio::test]
async fn freed_driver_gets_the_oldest_waiting_order() {
    let t = TestApp::with(retry_as_shipped).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    wait_for_drivers(&t, &["OLD", "MIDDLE", "YOUNG"]).await;
    assert_eq!(match_drivers(&t).await, 0, "no driver came to be free");

    // The trip ends. No time passes, and no search is due.
    t.carry_out("ORD-1", "D1").await;
    assert_eq!(match_drivers(&t).await, 1);
    assert_eq!(asked(&t, "OLD").await, ["D1"]);
    assert_eq!((asked(&t, "MIDDLE").await, asked(&t, "YOUNG").await), (vec![], vec![]));
    assert_eq!(match_drivers(&t).await, 0, "a driver with an offer is not looked at again");

    // A declined offer frees the driver for the next order.
    t.decline_offer("OLD").await;
    assert_eq!(match_drivers(&t).await, 1);
    assert_eq!(asked(&t, "MIDDLE").await, ["D1"]);

    // A cancelled order frees the driver too.
    t.cancel("MIDDLE").await.unwrap();
    assert_eq!(match_drivers(&t).await, 1);
    assert_eq!(asked(&t, "YOUNG").await, ["D1"]);
    // The pending searches are superseded or find no driver.
    t.run_for(secs(60)).await;
    assert_eq!(t.offers("YOUNG").await, [("D1".to_owned(), OfferState::Offered)]);
    t.assert_sound().await;
}

#[tokio::test]
async fn arriving_or_starting_driver_is_asked() {
    let t = TestApp::with(retry_as_shipped).await;
    t.drivers(&[("D1", 100.0), ("D2", 100.0)]).await;
    move_driver(&t, "D1", FAR_AWAY).await;
    drivers::set_available(&t.app.core.db, &"D2".into(), false).await.unwrap().unwrap();
    wait_for_drivers(&t, &["ORD-1", "ORD-2"]).await;
    assert_eq!(match_drivers(&t).await, 1, "D1 is looked at, and there is no order");

    move_driver(&t, "D1", PICKUP).await;
    assert_eq!(match_drivers(&t).await, 1);
    assert_eq!((asked(&t, "ORD-1").await, asked(&t, "ORD-2").await), (vec!["D1".into()], vec![]));

    let place = drivers::set_available(&t.app.core.db, &"D2".into(), true).await.unwrap().unwrap();
    driver_index::upsert_driver(&t.app.core, &place).await;
    assert_eq!(match_drivers(&t).await, 1);
    assert_eq!(asked(&t, "ORD-2").await, ["D2"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn order_with_a_running_search_is_matched() {
    let t = TestApp::with(retry_as_shipped).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    // The search of the order may have run before the driver arrived.
    move_driver(&t, "D1", PICKUP).await;
    assert_eq!(match_drivers(&t).await, 1);
    assert_eq!(asked(&t, "ORD-1").await, ["D1"]);
    t.run_due().await;
    assert_eq!(t.offers("ORD-1").await, [("D1".to_owned(), OfferState::Offered)]);
    t.assert_sound().await;
}

#[tokio::test]
async fn driver_whose_offer_lapsed_pauses_before_next() {
    let t = TestApp::with(retry_as_shipped).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.advance(secs(120)).await;
    t.run_due().await;
    assert_eq!(match_drivers(&t).await, 1, "the lapse freed the driver");
    assert_eq!(asked(&t, "ORD-1").await, Vec::<DriverId>::new());
    t.run_for(secs(15)).await;
    assert_eq!(asked(&t, "ORD-1").await, ["D1"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn cooled_down_driver_is_asked_again() {
    let t = TestApp::on_real_time(|config| config.dispatch.cool_down = millis(500)).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.order("ORD-2").await;
    t.run_due().await;
    t.decline_offer("ORD-1").await;
    eventually("the next order is offered, though its own search is not due", || async {
        match_drivers(&t).await;
        asked(&t, "ORD-2").await == ["D1"]
    })
    .await;
    t.assert_sound().await;
}

#[tokio::test]
async fn oldest_of_concurrent_orders_gets_the_driver() {
    let t = TestApp::with(retry_as_shipped).await;
    let orders: Vec<String> = (0..20).map(|n| format!("ORD-{n:02}")).collect();
    for order in &orders {
        t.order(order).await;
    }
    t.run_due().await;
    // No worker is notified of these drivers; the searches find them.
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.advance(secs(15)).await;
    assert_eq!(run_due_together(&t).await, 20);
    let mut found = [asked(&t, "ORD-00").await, asked(&t, "ORD-01").await].concat();
    found.sort();
    assert_eq!(found, ["D1", "D2"]);
    assert_eq!(t.count("SELECT count(*) FROM offers").await, 2);
    let untouched = "SELECT count(*) FROM orders WHERE round = 2 AND attempt_no = 0 AND version = 1";
    assert_eq!(t.count(untouched).await, 18, "the others write nothing");
    t.assert_sound().await;
}

#[tokio::test]
async fn skipped_freed_drivers_are_matched_later() {
    let t = TestApp::with(retry_as_shipped).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    move_driver(&t, "D1", PICKUP).await;
    t.sql("ALTER TABLE offers RENAME TO offers_away").await;
    assert!(waiting_orders::match_freed_drivers(&t.app.orders).await.is_err());
    t.sql("ALTER TABLE offers_away RENAME TO offers").await;
    assert_eq!(match_drivers(&t).await, 1);
    assert_eq!(asked(&t, "ORD-1").await, ["D1"]);

    // Redis lost the set of freed drivers. The order's own search finds the free driver.
    t.act("ORD-1", |s| actions::withdraw_offer(s, s.live_offer().unwrap().id, "why")).await.unwrap();
    t.run_due().await;
    let _: () = t.redis(&["DEL", "dispatchq:freed"]).await;
    assert_eq!(match_drivers(&t).await, 0);
    t.run_for(secs(15)).await;
    assert_eq!(asked(&t, "ORD-1").await, ["D1"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn paused_dispatch_queue_asks_no_driver() {
    let t = TestApp::with(retry_as_shipped).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    move_driver(&t, "D1", PICKUP).await;
    t.app.core.store.pause_queue(jobs::queues::DISPATCH).await.unwrap();
    assert_eq!(match_drivers(&t).await, 0);
    assert_eq!(asked(&t, "ORD-1").await, Vec::<DriverId>::new());

    t.app.core.store.resume_queue(jobs::queues::DISPATCH).await.unwrap();
    assert_eq!(match_drivers(&t).await, 1, "the driver was not forgotten");
    assert_eq!(asked(&t, "ORD-1").await, ["D1"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn flushed_redis_restores_pauses_before_offers() {
    let t = TestApp::with(retry_as_shipped).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    let operator = by("operator:test");
    let author = ActionAuthor { actor: &operator, reason: None };
    queue_pauses::pause_queue(&t.app.core, jobs::queues::DISPATCH, author).await.unwrap();
    t.redis::<()>(&["FLUSHALL"]).await;
    move_driver(&t, "D1", PICKUP).await;
    assert_eq!(match_drivers(&t).await, 0, "Redis has forgotten the pause");
    assert_eq!(asked(&t, "ORD-1").await, Vec::<DriverId>::new());
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().expect("no other process reconciles");
    assert_eq!(match_drivers(&t).await, 0, "the pause is back with the timers");

    queue_pauses::resume_queue(&t.app.core, jobs::queues::DISPATCH, author).await.unwrap();
    assert_eq!(match_drivers(&t).await, 1, "the driver was not forgotten");
    assert_eq!(asked(&t, "ORD-1").await, ["D1"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn wide_radius_is_searched_by_order_age() {
    let t = TestApp::with(|config| {
        retry_as_shipped(config);
        config.dispatch.radius_m = 900_000.0;
    })
    .await;
    wait_for_drivers(&t, &["OLD", "YOUNG"]).await;
    t.drivers(&[("D1", 100.0)]).await;
    move_driver(&t, "D1", FAR_AWAY).await;
    assert_eq!(match_drivers(&t).await, 1);
    assert_eq!(asked(&t, "OLD").await, ["D1"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn waiting_order_finds_driver_at_radius_edge() {
    let t = TestApp::with(|config| {
        retry_as_shipped(config);
        config.dispatch.radius_m = 5_000.0;
    })
    .await;
    wait_for_drivers(&t, &["ORD-1"]).await;
    t.drivers(&[("D1", 4_997.0)]).await;
    t.run_for(secs(15)).await;
    assert_eq!(asked(&t, "ORD-1").await, ["D1"]);
    t.assert_sound().await;
}
