//! Crashes and outages while orders are in flight. Every order ends correctly without manual repair.

use super::{assert_all_well, orders};
use crate::support::{Crowd, Fleet, hire, redis_command};
use queue::store::Takeable;

/// Creates orders that are in flight: workers have made offers, and no driver has answered.
async fn in_flight(fleet: &Fleet, count: usize) {
    hire(&fleet.app, 30).await;
    orders(fleet, "ORD", count).await;
    fleet.reach(30, "SELECT count(*) FROM offers").await;
}

/// Starts the drivers, creates more orders, and waits until all have ended.
async fn assert_all_end(fleet: &Fleet, earlier: i64) {
    let _crowd = Crowd::start(&fleet.app);
    orders(fleet, "LATER", 20).await;
    fleet.at_rest().await;
    assert_eq!(fleet.count("SELECT count(*) FROM orders WHERE closed_at IS NOT NULL").await, earlier + 20);
    assert_all_well(fleet).await;
}

#[tokio::test]
async fn a_killed_worker_loses_no_order() {
    let fleet = Fleet::with_lifetime("10s").await;
    let mut first = fleet.worker("w1");
    in_flight(&fleet, 100).await;
    assert!(!first.kill().success());
    let _second = fleet.running_worker("w2").await;
    assert_all_end(&fleet, 100).await;
}

#[tokio::test]
async fn a_flushed_redis_loses_no_order() {
    let fleet = Fleet::with_lifetime("10s").await;
    let _workers = [fleet.worker("w1"), fleet.worker("w2")];
    in_flight(&fleet, 60).await;
    redis_command::<()>(&fleet.redis.url(), &["FLUSHALL"]).await;
    fleet.reach(2, "SELECT count(*) FROM reconcile_log WHERE rebuild").await;
    assert_all_end(&fleet, 60).await;
}

#[tokio::test]
async fn crash_during_rebuild_loses_no_order() {
    let fleet = Fleet::with_lifetime("10s").await;
    hire(&fleet.app, 30).await;
    orders(&fleet, "ORD", 60).await;
    redis_command::<()>(&fleet.redis.url(), &["FLUSHALL"]).await;
    let mut first = fleet.worker_with("w1", &[("CRASH_AT", "rebuild.horizon")]);
    assert!(!first.ended().await.success());
    assert!(first.log().contains("CRASH_AT=rebuild.horizon"), "{}", first.log());
    assert!(matches!(fleet.app.core.store.takeable().await.unwrap(), Takeable::UpTo(_)), "what it put in may be taken");
    let _second = fleet.running_worker("w2").await;
    fleet.reach(1, "SELECT count(*) FROM reconcile_log WHERE rebuild").await;
    assert_all_end(&fleet, 60).await;
}

#[tokio::test]
async fn a_redis_that_dies_and_comes_back_loses_no_order() {
    let mut fleet = Fleet::with_lifetime("10s").await;
    let _workers = [fleet.worker("w1"), fleet.worker("w2")];
    in_flight(&fleet, 60).await;
    fleet.redis.kill().await;
    orders(&fleet, "MEANWHILE", 2).await;
    fleet.redis.restart().await.unwrap();
    fleet.reach(2, "SELECT count(*) FROM reconcile_log WHERE rebuild").await;
    assert_all_end(&fleet, 62).await;
}

#[tokio::test]
async fn postgres_restart_loses_no_order_or_job() {
    let mut fleet = Fleet::with_lifetime("10s").await;
    let _workers = [fleet.worker("w1"), fleet.worker("w2")];
    in_flight(&fleet, 60).await;
    fleet.postgres.stop().await.unwrap();
    fleet.postgres.restart().await.unwrap();
    fleet.reach(60, "SELECT count(*) FROM orders").await;
    assert_all_end(&fleet, 60).await;
}
