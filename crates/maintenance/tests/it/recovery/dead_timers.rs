//! No order waits for a job that will not run: a dead timer puts its order on the desk.

use maintenance::recovery::reconciler;
use model::{
    decide::actions,
    messages::{MANUAL_REFUND_REQUIRED, TIMER_DEAD, UNEXPECTED_STATE},
    order::OrderStatus,
};
use queue::Outcome;
use test_support::{TestApp, by, secs};

/// Makes the next due job dead.
async fn kill_next(t: &TestApp, job: &str) {
    let leased = t.take().await.remove(0);
    assert_eq!(leased.delivery.id.as_str(), job);
    t.settle(&leased, Outcome::Dead("it can never work".to_owned())).await;
}

/// Creates an order under review whose first dispatch job is dead.
async fn held() -> TestApp {
    let t = TestApp::start().await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    kill_next(&t, "dispatch:ORD-1:1").await;
    t.advance(secs(4)).await;
    assert_eq!(reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap().held, 1);
    t
}

#[tokio::test]
async fn a_dead_timer_holds_its_order_and_alerts_support_once() {
    let t = held().await;
    t.run_due().await;
    let order = t.snapshot("ORD-1").await.order;
    assert_eq!((order.status, order.held_for_review), (OrderStatus::Dispatching, true));
    assert!(order.held_reason.unwrap().contains("dispatch:ORD-1:1"));
    for _ in 0..3 {
        t.advance(secs(1000)).await;
        assert_eq!(reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap().held, 0);
        t.run_due().await;
    }
    assert_eq!(t.messages_of("ORD-1", TIMER_DEAD).await, 1);
    assert!(t.snapshot("ORD-1").await.order.held_for_review, "no timer moves it on");
    t.assert_sound().await;
}

#[tokio::test]
async fn a_dead_timeout_takes_its_offer_back() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.advance(secs(120)).await;
    kill_next(&t, "timeout:ORD-1:1").await;
    t.advance(secs(4)).await;
    assert_eq!(reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap().held, 1);
    assert_eq!(t.snapshot("ORD-1").await.live_offer(), None);
    t.assert_sound().await;
}

#[tokio::test]
async fn a_held_order_can_be_assigned_or_cancelled() {
    let t = held().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.act("ORD-1", |s| actions::assign_driver(s, &by("operator:test"), &"D1".into())).await.unwrap();
    t.carry_out("ORD-1", "D1").await;
    t.assert_sound().await;

    let t = held().await;
    t.cancel("ORD-1").await.unwrap();
    t.run_due().await;
    assert_eq!(t.messages_of("ORD-1", MANUAL_REFUND_REQUIRED).await, 1);
    t.assert_sound().await;
}

#[tokio::test]
async fn a_held_order_can_be_redispatched() {
    let t = held().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.act("ORD-1", |s| actions::redispatch_order(s, &by("operator:test"))).await.unwrap();
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "D1");
    t.accept_offer("ORD-1").await;
    t.carry_out("ORD-1", "D1").await;
    t.assert_sound().await;
}

#[tokio::test]
async fn a_paid_order_ended_by_hand_is_refunded() {
    let t = TestApp::start().await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.run_for(secs(1799)).await;
    t.advance(secs(1)).await;
    while t.status("ORD-1").await != OrderStatus::Compensating {
        let leased = t.take().await.remove(0);
        let outcome = t.perform(&leased).await;
        t.settle(&leased, outcome).await;
    }
    kill_next(&t, "compensate:ORD-1").await;
    t.advance(secs(4)).await;
    assert_eq!(reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap().held, 1);

    t.act("ORD-1", |s| actions::cancel_order(s, &by("operator:test"), None)).await.unwrap();
    t.run_due().await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    assert_eq!(t.messages_of("ORD-1", MANUAL_REFUND_REQUIRED).await, 1);
    t.assert_sound().await;
}

#[tokio::test]
async fn an_order_held_again_is_told_again() {
    let t = held().await;
    assert_eq!(t.messages_of("ORD-1", TIMER_DEAD).await, 1);
    t.act("ORD-1", |s| actions::redispatch_order(s, &by("operator:test"))).await.unwrap();
    let leased = t.take().await;
    let dispatch = leased.iter().find(|l| l.delivery.id.as_str() == "dispatch:ORD-1:1").unwrap();
    t.settle(dispatch, Outcome::Dead("it still cannot work".to_owned())).await;
    t.advance(secs(4)).await;
    assert_eq!(reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap().held, 1);
    assert_eq!(t.messages_of("ORD-1", TIMER_DEAD).await, 2);
}

#[tokio::test]
async fn a_cancelled_order_with_an_unknown_payment_is_told() {
    let t = TestApp::start().await;
    t.order_of("ORD-1", "RIDE", "CAPTURED").await;
    t.act("ORD-1", |s| actions::cancel_order(s, &by("producer:test"), None)).await.unwrap();
    assert_eq!(t.messages_of("ORD-1", UNEXPECTED_STATE).await, 2, "of the word, and of the end");
    t.assert_sound().await;
}
