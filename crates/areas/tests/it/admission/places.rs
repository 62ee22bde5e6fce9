//! Places of creations that are abandoned or fail.

use super::{HERE, create, full_at, new};
use orders::create::CreateError;
use test_support::{TestApp, by, eventually, id, lasting_transaction};

/// Returns the end time of the order's place in Redis, or `None` when it has no place.
async fn place_of(t: &TestApp, order: &str) -> Option<String> {
    t.redis(&["ZSCORE", "waiting:order:JKT:RIDE", order]).await
}

/// A request that reaches its time limit: its creation is in a batch and is still committed.
#[tokio::test]
async fn abandoned_creation_keeps_its_place() {
    let t = TestApp::start().await;
    full_at(&t, 5).await;
    let mut lock = lasting_transaction(&t.postgres).await;
    sqlx::raw_sql("LOCK TABLE orders IN SHARE ROW EXCLUSIVE MODE").execute(&mut *lock).await.unwrap();
    let app = t.app.clone();
    let creation = tokio::spawn(async move {
        create::create_order(&app.orders, id("ORD-1"), &new("ORD-1", HERE, None), &by("producer:test")).await
    });
    let writing =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '-- create order%'";
    eventually("the creation is being written", || async { t.count(writing).await == 1 }).await;
    creation.abort();
    assert!(creation.await.unwrap_err().is_cancelled());
    // Gives tasks that the aborted creation may have left behind a chance to run.
    for _ in 0..20 {
        assert!(place_of(&t, "ORD-1").await.is_some(), "its place was given back before the write was answered");
    }
    lock.rollback().await.unwrap();
    eventually("the order is written", || async { t.count("SELECT count(*) FROM orders").await == 1 }).await;
    assert!(place_of(&t, "ORD-1").await.is_some(), "an order waits without a place");
    t.cancel("ORD-1").await.unwrap();
    assert_eq!(place_of(&t, "ORD-1").await, None);
}

#[tokio::test]
async fn a_creation_that_postgres_refuses_gives_its_place_back() {
    let t = TestApp::start().await;
    full_at(&t, 5).await;
    t.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    .await;
    let new = new("ORD-1", HERE, None);
    let refused = create::create_order(&t.app.orders, id("ORD-1"), &new, &by("producer:test")).await;
    assert!(matches!(refused, Err(CreateError::Database(_))), "{refused:?}");
    assert_eq!(place_of(&t, "ORD-1").await, None);
    assert_eq!(t.count("SELECT count(*) FROM orders").await, 0);
}

/// Redis has lost the waiting orders and admits the order.
#[tokio::test]
async fn a_refusal_by_postgres_says_what_one_by_redis_says() {
    let t = TestApp::start().await;
    full_at(&t, 1).await;
    assert_eq!(create(&t, "ORD-1", None).await, None);
    let by_redis = create(&t, "ORD-2", None).await.unwrap();
    assert_eq!(by_redis["nearby_areas"][0]["area_id"], "BGR");
    assert_eq!(t.redis::<i64>(&["DEL", "waiting:order:JKT:RIDE"]).await, 1);
    assert_eq!(create(&t, "ORD-2", None).await, Some(by_redis));
    assert_eq!(place_of(&t, "ORD-2").await, None);
}
