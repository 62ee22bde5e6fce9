//! No driver is left to ask, and the service type notifies the dispatchers. The order waits for a dispatcher.

use accounts::api_keys::AccountRole;
use model::{decide::actions, messages::DISPATCH_FAILED, order::OrderStatus};
use orders::change::ChangeError;
use test_support::{TestApp, by, secs};

const PENDING_HISTORY: [&str; 2] = ["ORDER_CREATED", "NO_CANDIDATES"];

/// Creates a RENT order that finds no driver.
async fn pending(t: &TestApp) {
    t.order_of("ORD-1", "RENT", "UNPAID").await;
    t.run_due().await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::Pending);
}

#[tokio::test]
async fn each_dispatcher_is_told_once() {
    let t = TestApp::start().await;
    t.user("anna", AccountRole::Dispatcher, "log").await;
    t.user("budi", AccountRole::Dispatcher, "log").await;
    t.user("siti", AccountRole::Support, "log").await;
    pending(&t).await;
    assert_eq!(t.reasons("ORD-1").await, PENDING_HISTORY);
    assert_eq!(t.messages_of("ORD-1", DISPATCH_FAILED).await, 2);
    let told = t.texts("SELECT dedupe_key FROM outbox ORDER BY id").await;
    assert_eq!(told, ["round-1:anna", "round-1:budi"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn an_order_waits_for_a_person_once_everybody_was_asked() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order_of("ORD-1", "RENT", "UNPAID").await;
    t.run_due().await;
    t.decline_offer("ORD-1").await;
    t.run_for(secs(120)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::Pending);
    let history =
        ["ORDER_CREATED", "ATTEMPT_STARTED", "OFFER_DECLINED", "ATTEMPT_STARTED", "ATTEMPT_TIMEOUT", "NO_CANDIDATES"];
    assert_eq!(t.reasons("ORD-1").await, history);
    assert_eq!(t.timers().await.into_keys().collect::<Vec<_>>(), ["lifetime:ORD-1", "remind:ORD-1:1"]);
    t.assert_sound().await;

    // A new search asks the driver whose offer expired, but not the driver who declined.
    t.act("ORD-1", |s| actions::redispatch_order(s, &by("operator:test"))).await.unwrap();
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "D2");
    t.assert_sound().await;
}

#[tokio::test]
async fn without_dispatchers_the_configured_channel_is_told() {
    let t = TestApp::start().await;
    pending(&t).await;
    let told = ("DISPATCH_FAILED".to_owned(), "log".to_owned(), "delivered".to_owned());
    assert_eq!(t.messages("ORD-1").await, [told]);
    t.assert_sound().await;
}

#[tokio::test]
async fn a_redispatched_order_searches_anew_and_tells_the_dispatchers_again() {
    let t = TestApp::start().await;
    pending(&t).await;
    t.act("ORD-1", |s| actions::redispatch_order(s, &by("operator:test"))).await.unwrap();
    t.run_due().await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::Pending);
    assert_eq!(t.messages_of("ORD-1", DISPATCH_FAILED).await, 2);

    t.drivers(&[("D1", 100.0)]).await;
    t.act("ORD-1", |s| actions::redispatch_order(s, &by("operator:test"))).await.unwrap();
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    t.carry_out("ORD-1", "D1").await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::Completed);
    t.assert_sound().await;
}

#[tokio::test]
async fn a_driver_named_by_hand_takes_the_order() {
    let t = TestApp::start().await;
    pending(&t).await;
    t.drivers(&[("D9", 4000.0)]).await;
    t.act("ORD-1", |s| actions::assign_driver(s, &by("operator:test"), &"D9".into())).await.unwrap();
    t.carry_out("ORD-1", "D9").await;
    assert_eq!(
        t.reasons("ORD-1").await,
        ["ORDER_CREATED", "NO_CANDIDATES", "ASSIGNED_BY_HAND", "PICKED_UP", "COMPLETED"]
    );
    t.run_for(secs(1801)).await;
    t.assert_sound().await;
}

#[tokio::test]
async fn a_pending_order_can_be_cancelled() {
    let t = TestApp::start().await;
    pending(&t).await;
    t.cancel("ORD-1").await.unwrap();
    t.run_for(secs(1801)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledByUser);
    t.assert_sound().await;
}

#[tokio::test]
async fn the_lifetime_ends_a_pending_order() {
    let t = TestApp::start().await;
    pending(&t).await;
    t.run_for(secs(1799)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::Pending);
    t.run_for(secs(1)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystem);
    t.assert_sound().await;
}

#[tokio::test]
async fn a_service_type_may_let_pending_orders_outlive_their_lifetime() {
    let t = TestApp::with(|config| config.dispatch.pending_keeps_lifetime = false).await;
    pending(&t).await;
    t.run_for(secs(7200)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::Pending);
    t.assert_sound().await;
    let late = t.act("ORD-1", |s| actions::redispatch_order(s, &by("operator:test"))).await;
    assert!(matches!(late, Err(ChangeError::Refused(model::decide::OrderRefusal::LifetimeOver))), "{late:?}");

    t.drivers(&[("D1", 100.0)]).await;
    t.act("ORD-1", |s| actions::assign_driver(s, &by("operator:test"), &"D1".into())).await.unwrap();
    t.carry_out("ORD-1", "D1").await;
    t.assert_sound().await;
}
