//! The test clock of `dispatchq dev`: the times of one order move, and its timers run.

use chrono::{DateTime, TimeDelta, Utc};
use maintenance::recovery::reconciler;
use model::{
    decide::{OrderRefusal, test_clock::ClockTarget},
    order::{OrderStatus, Snapshot},
};
use orders::{change::ChangeError, test_clock};
use settings::WaveConfig;
use test_support::{TestApp, id, ids, secs};

fn now(t: &TestApp) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(t.now_ms().cast_signed()).unwrap()
}

async fn try_advance(t: &TestApp, order: &str, to: ClockTarget) -> Result<Snapshot, ChangeError> {
    test_clock::advance_order(&t.app.orders, &id(order), to, |_| true).await
}

async fn advance(t: &TestApp, order: &str, to: ClockTarget) -> Snapshot {
    try_advance(t, order, to).await.unwrap()
}

#[tokio::test]
async fn attempt_times_out_at_its_moved_deadline() {
    let t = TestApp::with_offer().await;
    let offer = t.live_offer("ORD-1").await;
    let moved = advance(&t, "ORD-1", ClockTarget::AttemptDeadline).await;
    assert_eq!(moved.order.attempt_deadline, Some(now(&t)));
    assert_eq!(t.timers().await["timeout:ORD-1:1"], t.now_ms());
    // The offer ended with its attempt.
    let late = t.accept("ORD-1", &offer.driver_id, offer.id).await;
    assert!(matches!(late, Err(ChangeError::Refused(OrderRefusal::OfferExpired))), "{late:?}");
    assert!(ids(&t.run_due().await).contains(&"timeout:ORD-1:1"));
    assert_eq!(t.asked("ORD-1").await, "D2");
    t.accept_offer("ORD-1").await;
    t.carry_out("ORD-1", "D2").await;
    t.assert_sound().await;
}

#[tokio::test]
async fn order_ends_at_its_moved_lifetime() {
    let t = TestApp::with_offer().await;
    advance(&t, "ORD-1", ClockTarget::Lifetime).await;
    t.run_due().await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystem);
    t.assert_sound().await;
}

#[tokio::test]
async fn scheduled_order_runs_from_its_moved_pickup() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order_at("ORD-1", now(&t) + TimeDelta::days(2)).await;
    let moved = advance(&t, "ORD-1", ClockTarget::PickupAt).await;
    assert_eq!(moved.order.pickup_at, Some(now(&t)));
    assert_eq!(moved.order.starts_at, Some(now(&t) - TimeDelta::minutes(20)));
    assert_eq!(moved.order.lifetime_deadline, now(&t) + TimeDelta::minutes(10));
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "D1");
    t.assert_sound().await;
    t.accept_offer("ORD-1").await;
    t.carry_out("ORD-1", "D1").await;
    t.assert_sound().await;
}

#[tokio::test]
async fn attempt_with_waves_has_one_outcome() {
    let wave = |within: f64, lasts: Option<u64>| WaveConfig { ask: 1, within, lasts: lasts.map(secs) };
    let t = TestApp::with(|config| {
        let waves = vec![wave(500.0, Some(20)), wave(2_000.0, Some(20)), wave(5_000.0, None)];
        config.service_types.entry("RIDE".into()).or_default().waves = Some(waves);
    })
    .await;
    t.drivers(&[("D1", 100.0), ("D2", 1_000.0), ("D3", 3_000.0)]).await;
    t.order("ORD-1").await;
    t.run_for(secs(20)).await;
    assert_eq!(t.live_offers("ORD-1").await.len(), 2);
    t.decline_offer("ORD-1").await;
    advance(&t, "ORD-1", ClockTarget::AttemptDeadline).await;
    t.run_due().await;
    assert_eq!(t.live_offer("ORD-1").await.attempt_no, 2);
    t.assert_sound().await;
}

#[tokio::test]
async fn moved_times_survive_a_flush_of_redis() {
    let t = TestApp::with_offer().await;
    advance(&t, "ORD-1", ClockTarget::AttemptDeadline).await;
    t.redis::<()>(&["FLUSHALL"]).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap();
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "D2");
    t.assert_sound().await;
}

#[tokio::test]
async fn other_orders_keep_their_times() {
    let t = TestApp::with_offer().await;
    t.order("OTHER").await;
    t.run_due().await;
    let before = t.snapshot("OTHER").await;
    advance(&t, "ORD-1", ClockTarget::Lifetime).await;
    assert_eq!(t.snapshot("OTHER").await, before);
}

#[tokio::test]
async fn order_without_the_time_is_left_alone() {
    let t = TestApp::with_offer().await;
    let before = t.dump().await;
    let refused = try_advance(&t, "ORD-1", ClockTarget::PickupAt).await;
    assert!(matches!(refused, Err(ChangeError::Refused(OrderRefusal::WrongState { .. }))), "{refused:?}");
    let unknown = try_advance(&t, "NONE", ClockTarget::Lifetime).await;
    assert!(matches!(unknown, Err(ChangeError::NotFound)), "{unknown:?}");
    let hidden = test_clock::advance_order(&t.app.orders, &id("ORD-1"), ClockTarget::Lifetime, |_| false).await;
    assert!(matches!(hidden, Err(ChangeError::NotFound)), "{hidden:?}");
    assert_eq!(t.dump().await, before);
}
