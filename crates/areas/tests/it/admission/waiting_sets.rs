//! The sets of waiting orders in Redis: flushed, unavailable, wrong, and repaired.

use tokio_util::sync::CancellationToken;

use super::{AUTHOR, create, full_at, limit, refresh};
use areas::{
    admission::{
        limits_mirror,
        waiting::{self, SuspectMembers},
    },
    table::{geofences, limits::LimitsChange},
};
use test_support::{TestApp, eventually, secs};

#[tokio::test]
async fn after_a_flush_postgres_counts_and_nothing_is_overshot() {
    let t = TestApp::start().await;
    full_at(&t, 3).await;
    for n in 0..2 {
        create(&t, &format!("ORD-{n}"), None).await;
    }
    let _: () = t.redis(&["FLUSHALL"]).await;
    assert_eq!(create(&t, "ORD-2", None).await, None);
    let refused = create(&t, "ORD-3", None).await.unwrap();
    assert_eq!(refused["current_waiting"], 3);
    let drift = waiting::repair_waiting_sets(&t.app.areas, &mut SuspectMembers::default()).await.unwrap();
    assert_eq!((drift.missing, drift.left_over), (3, 0));
    assert!(create(&t, "ORD-4", None).await.is_some());
    let counted: i64 = t.redis(&["ZCARD", "waiting:order:JKT:RIDE"]).await;
    assert_eq!(counted, 3);
}

#[tokio::test]
async fn without_redis_the_threshold_holds() {
    let mut t = TestApp::start().await;
    full_at(&t, 2).await;
    t.redis.stop().await.unwrap();
    assert_eq!(create(&t, "ORD-1", None).await, None);
    assert_eq!(create(&t, "ORD-2", None).await, None);
    assert!(create(&t, "ORD-3", None).await.is_some());
    t.redis.restart().await.unwrap();
}

#[tokio::test]
async fn a_place_whose_order_never_came_is_given_back() {
    let t = TestApp::start().await;
    full_at(&t, 1).await;
    let _: () = t.redis(&["ZADD", "waiting:order:JKT:RIDE", "9999999999999", "ORD-GHOST"]).await;
    assert!(create(&t, "ORD-1", None).await.is_some());
    let mut suspects = SuspectMembers::default();
    let first = waiting::repair_waiting_sets(&t.app.areas, &mut suspects).await.unwrap();
    assert_eq!(first.left_over, 0, "it may be on its way");
    suspects.backdate_suspects(secs(61));
    let second = waiting::repair_waiting_sets(&t.app.areas, &mut suspects).await.unwrap();
    assert_eq!(second.left_over, 1);
    assert_eq!(create(&t, "ORD-2", None).await, None);
}

// Rule L6: Redis has the limits of every area and service type, also of areas without limits of their own.
#[tokio::test]
async fn limits_of_every_area_are_copied_for_an_hour() {
    let t = TestApp::start().await;
    full_at(&t, 7).await;
    limit(&t, "JKT", LimitsChange { waiting_timeout_sec: Some(300), ..LimitsChange::default() }).await;
    limits_mirror::mirror_limits(&t.app.areas).await.unwrap();
    for (key, copy) in [
        ("threshold:config:JKT:RIDE", [7, 300]),
        ("threshold:config:BGR:RIDE", [7, 1800]),
        ("threshold:config:JKT:DELIVERY", [t.app.config.admission.max_waiting_orders, 1800]),
    ] {
        let copied: Vec<i64> = t.redis(&["HMGET", key, "threshold", "timeout_seconds"]).await;
        assert_eq!(copied, copy, "{key}");
        let ttl: i64 = t.redis(&["TTL", key]).await;
        assert!((1..=3600).contains(&ttl), "{ttl}");
    }
}

// Rule L6: A worker updates the limits in Redis at each change of the rules, and deletes the limits of removed areas.
#[tokio::test]
async fn changed_rules_reach_the_copies_at_once() {
    let t = TestApp::start().await;
    full_at(&t, 7).await;
    let stop = CancellationToken::new();
    let copying = tokio::spawn(limits_mirror::keep_copied(t.app.areas.clone(), stop.clone()));
    let threshold = async |area: &str| -> Option<i64> {
        t.redis(&["HGET", &format!("threshold:config:{area}:RIDE"), "threshold"]).await
    };
    eventually("the limits are copied", || async { threshold("JKT").await == Some(7) }).await;
    limit(&t, "JKT", LimitsChange { max_waiting_orders: Some(9), ..LimitsChange::default() }).await;
    eventually("the change is copied", || async { threshold("JKT").await == Some(9) }).await;
    geofences::remove_area(&t.app.core.db, &"BGR".into(), None, AUTHOR).await.unwrap();
    t.sql("DELETE FROM area_limits WHERE area_id = 'BGR'").await;
    refresh(&t).await;
    eventually("the copy is gone", || async { threshold("BGR").await.is_none() }).await;
    stop.cancel();
    copying.await.unwrap();
}

#[tokio::test]
async fn many_who_wait_are_put_back_whole_after_a_flush() {
    let t = TestApp::start().await;
    full_at(&t, 5_000).await;
    create(&t, "ORD-1", None).await;
    t.sql(
        "CREATE TABLE copies AS SELECT (jsonb_populate_record(o, jsonb_build_object('id', 'COPY-' || n))).*
             FROM orders o, generate_series(1, 1500) n;
         -- Postgres computes these columns.
         ALTER TABLE copies DROP COLUMN on_trip, DROP COLUMN searching, DROP COLUMN searching_fleet, DROP COLUMN needs_decision,
             DROP COLUMN owes_refund, DROP COLUMN closed_status;
         INSERT INTO orders SELECT * FROM copies; DROP TABLE copies",
    )
    .await;
    let _: () = t.redis(&["FLUSHALL"]).await;
    let drift = waiting::repair_waiting_sets(&t.app.areas, &mut SuspectMembers::default()).await.unwrap();
    assert_eq!((drift.missing, drift.left_over), (1_501, 0));
    let count: i64 = t.redis(&["ZCARD", "waiting:order:JKT:RIDE"]).await;
    assert_eq!(count, 1_501);
}
