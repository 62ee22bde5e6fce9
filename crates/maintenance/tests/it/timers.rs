//! No timer waits longer than documented, whatever the state of Redis and the clocks.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicU64},
};

use foundation::{queue_pauses, staff_actions::ActionAuthor};
use maintenance::recovery::reconciler;
use model::{
    decide::actions,
    ids::LatLng,
    messages::MANUAL_REFUND_REQUIRED,
    order::{OrderStatus, Snapshot},
};
use orders::{fleet::driver_index, seen::Basis};
use queue::ScriptClock;
use test_support::{Counting, Scrape, TestApp, by, eventually, ids, secs};

// Fault F9
/// The driver declines, and the process dies before it moves the timer. The timer stays 50 s ahead.
#[tokio::test]
async fn declined_offer_continues_after_lost_enqueue() {
    let t = TestApp::with_offer().await;
    t.advance(secs(70)).await;
    let offer = t.live_offer("ORD-1").await;
    let order = "ORD-1".parse().unwrap();
    let decline = |s: &Snapshot| actions::decline_offer(s, &offer.driver_id, offer.id, None);
    t.app.orders.change(&order, Basis::Fresh, decline).await.unwrap().publish(&t.app.orders).await;
    assert!(t.timers().await["timeout:ORD-1:1"] > t.now_ms() + 40_000);
    t.advance(secs(4)).await;
    assert_eq!(reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap().moved, 1);
    assert_eq!(ids(&t.run_due().await)[0], "timeout:ORD-1:1");
    assert_eq!(t.asked("ORD-1").await, "D2");
    t.assert_sound().await;
}

async fn ends_its_order_without_redis(t: &TestApp) {
    t.advance(secs(1800 + 61)).await;
    assert!(reconciler::reconcile_once(&t.app.maintenance).await.is_err(), "the timers cannot be looked at");
    assert_eq!(t.status("ORD-1").await, OrderStatus::Compensating);
    t.advance(secs(61)).await;
    assert!(reconciler::reconcile_once(&t.app.maintenance).await.is_err());
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    let logged = t.count("SELECT sum(compensated)::bigint FROM reconcile_log").await;
    assert_eq!(logged, 2, "runs that fail keep what they did");
}

async fn is_told_to_support_when_redis_is_back(t: &TestApp) {
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    t.run_due().await;
    assert_eq!(t.messages_of("ORD-1", MANUAL_REFUND_REQUIRED).await, 1);
}

// Fault F12
#[tokio::test]
async fn an_order_ends_while_redis_is_gone() {
    let mut t = TestApp::start().await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.redis.stop().await.unwrap();
    ends_its_order_without_redis(&t).await;
    t.redis.restart().await.unwrap();
    is_told_to_support_when_redis_is_back(&t).await;
}

// Fault F12
#[tokio::test]
async fn an_order_ends_while_redis_is_full() {
    let t = TestApp::start().await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    let _: () = t.redis(&["CONFIG", "SET", "maxmemory", "1"]).await;
    t.advance(secs(1800 + 61)).await;
    // Redis lacks no timer, so the reconciler enqueues only follow-up jobs.
    let _ = reconciler::reconcile_once(&t.app.maintenance).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::Compensating);
    let _: () = t.redis(&["CONFIG", "SET", "maxmemory", "0"]).await;
    t.run_due().await;
    is_told_to_support_when_redis_is_back(&t).await;
}

/// A job that a request could not enqueue is retried before it is overdue.
#[tokio::test]
async fn timers_refused_by_full_redis_are_retried() {
    let t = TestApp::start().await;
    let _: () = t.redis(&["CONFIG", "SET", "maxmemory", "1"]).await;
    t.order("ORD-1").await;
    assert!(t.timers().await.is_empty());
    let _: () = t.redis(&["CONFIG", "SET", "maxmemory", "0"]).await;
    eventually("all its timers are there", || async { t.timers().await.contains_key("lifetime:ORD-1") }).await;
    assert!(t.timers().await.contains_key("dispatch:ORD-1:1"));
    t.run_due().await;
    t.assert_sound().await;
}

// Fault F17
/// Simulates a failover to a host whose clock is an hour behind: jobs in Redis appear to be due in an hour.
#[tokio::test]
async fn timers_from_fast_clock_follow_their_rows() {
    let counting = Counting::start();
    let t = TestApp::with_offer().await;
    t.advance(secs(124)).await;
    let behind = Arc::new(AtomicU64::new(t.now_ms() - 3_600_000));
    let app = t.app.clone().with_store(t.app.core.store.clone().with_clock(ScriptClock::Fixed(behind)));
    assert_eq!(
        reconciler::reconcile_once(&app.maintenance).await.unwrap().unwrap().moved,
        2,
        "its timeout and its lifetime"
    );
    let due = t.timers().await["timeout:ORD-1:1"];
    assert_eq!(due, t.now_ms() - 3_600_000, "now, by the clock that Redis has");

    let (at, _stop) = counting.shown(&app).await;
    // A clock that does not answer in time reports no number.
    eventually("the clock is shown an hour behind", || async {
        Scrape::ask(&at).await.value("dispatchq_redis_clock_ahead_seconds") == -3_600.0
    })
    .await;
    let leased = t.take().await;
    let timeout = leased.iter().find(|leased| leased.delivery.id.as_str() == "timeout:ORD-1:1").unwrap();
    t.perform(timeout).await;
    let late = counting.read().value("dispatchq_timer_lateness_seconds_sum");
    assert!((4.0..5.0).contains(&late), "4 s by the row, whatever Redis says: {late}");
}

// Fault F19f
/// The reconciler reads that a queue is stopped, an operator resumes it, and the reconciler stops it.
#[tokio::test]
async fn reconciler_never_undoes_a_resume() {
    let t = TestApp::start().await;
    let queue = jobs::queues::DISPATCH;
    let operator = by("operator:test");
    let author = ActionAuthor { actor: &operator, reason: None };
    for round in 0..100 {
        queue_pauses::pause_queue(&t.app.core, queue, author).await.unwrap();
        let _: () = t.redis(&["SREM", &t.app.core.store.keys().paused_queues(), queue]).await;
        let (mirrored, resumed) = tokio::join!(
            queue_pauses::mirror_pauses(&t.app.core),
            queue_pauses::resume_queue(&t.app.core, queue, author)
        );
        mirrored.unwrap();
        resumed.unwrap();
        let paused: bool = t.redis(&["SISMEMBER", &t.app.core.store.keys().paused_queues(), queue]).await;
        assert!(!paused, "round {round}");
    }
}

// Fault F19f
#[tokio::test]
async fn reconciler_resumes_queue_paused_only_in_redis() {
    let t = TestApp::start().await;
    t.app.core.store.pause_queue(jobs::queues::DISPATCH).await.unwrap();
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap();
    assert!(!t.app.core.store.queue_stats(&[jobs::queues::DISPATCH]).await.unwrap()[0].paused);
}

// Fault F19g
#[tokio::test]
async fn no_index_of_drivers_is_left_for_good() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    let ttl = async || -> i64 { t.redis(&["TTL", "dispatchq:drivers:RIDE"]).await };
    // A driver moves before the index exists.
    let place = driver_index::DriverPlace {
        id: "D1".into(),
        service_types: vec!["RIDE".into()],
        at: LatLng::new(-6.2, 106.8),
        available: true,
    };
    driver_index::upsert_driver(&t.app.core, &place).await;
    assert!(ttl().await > 0);
    let _: () = t.redis(&["PERSIST", "dispatchq:drivers:RIDE"]).await;
    assert!(driver_index::rebuild_if_missing(&t.app.orders).await.unwrap());
    assert!(ttl().await > 0);
}

// Fault S20h
/// Key names are fixed by the requirements, belong to the queue engine, or have our prefix.
#[tokio::test]
async fn every_key_in_redis_says_whose_it_is() {
    let t = TestApp::with_offer().await;
    driver_index::rebuild_if_missing(&t.app.orders).await.unwrap();
    t.accept_offer("ORD-1").await;
    let keys: BTreeSet<String> = t.redis(&["KEYS", "*"]).await;
    let known = ["{dq:0}:", "dispatchq:", "trip_lock:", "waiting:order:", "threshold:config:"];
    let strangers: Vec<_> = keys.iter().filter(|key| !known.iter().any(|prefix| key.starts_with(prefix))).collect();
    assert_eq!(strangers, Vec::<&String>::new(), "see crates/foundation/src/redis_keys.rs");
    assert!(
        keys.iter().any(|key| key.starts_with("trip_lock:")) && keys.contains("dispatchq:drivers:RIDE"),
        "{keys:?}"
    );
}
