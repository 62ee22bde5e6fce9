//! Orders without a driver end with their lifetime. The payment decides the final status.

use model::{
    decide::{OrderRefusal, actions},
    messages::{MANUAL_REFUND_REQUIRED, ORDER_CANCELLED, UNEXPECTED_STATE},
    order::OrderStatus,
};
use orders::change::ChangeError;
use settings::ChannelConfig;
use test_support::{TestApp, by, millis, secs};

#[tokio::test]
async fn unpaid_order_is_cancelled_exactly_at_its_lifetime() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    t.run_for(secs(1800) - millis(1)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::Dispatching);
    t.run_for(millis(1)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystem);
    let reasons = t.reasons("ORD-1").await;
    assert_eq!(reasons[reasons.len() - 2..], ["LIFETIME_TIMEOUT", "COMPENSATED_UNPAID"]);
    let told: Vec<_> = t.messages("ORD-1").await.into_iter().map(|(kind, ..)| kind).collect();
    assert_eq!(told, [ORDER_CANCELLED]);
    t.assert_sound().await;
}

#[tokio::test]
async fn a_paid_order_raises_one_refund_alert_on_each_channel() {
    for payment in ["PAID", "SETTLEMENT"] {
        let t = TestApp::with(|config| {
            config.channels.insert("desk".to_owned(), ChannelConfig::unsigned_webhook("http://127.0.0.1:9/"));
            config.notifications.support = vec!["log".to_owned(), "desk".to_owned()];
        })
        .await;
        t.order_of("ORD-1", "RIDE", payment).await;
        t.run_for(secs(1805)).await;
        assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
        let alerts = t.messages("ORD-1").await;
        let channels: Vec<_> = alerts.iter().map(|(kind, channel, _)| (kind.as_str(), channel.as_str())).collect();
        let refund = [(MANUAL_REFUND_REQUIRED, "log"), (MANUAL_REFUND_REQUIRED, "desk")];
        assert_eq!(channels, [&refund[..], &[(ORDER_CANCELLED, "log")]].concat());
        t.assert_sound().await;
    }
}

#[tokio::test]
async fn an_unknown_payment_is_held_for_a_person() {
    let t = TestApp::start().await;
    t.order_of("ORD-1", "RIDE", "DISPUTED").await;
    t.run_for(secs(1800)).await;
    let held = t.snapshot("ORD-1").await.order;
    assert_eq!((held.status, held.held_for_review), (OrderStatus::Compensating, true));
    assert!(held.held_reason.unwrap().contains("DISPUTED"));
    assert_eq!(t.messages_of("ORD-1", UNEXPECTED_STATE).await, 2, "of the word, and of the end");
    t.run_for(secs(3600)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::Compensating);
    t.assert_sound().await;

    let customer = t.cancel("ORD-1").await;
    assert!(matches!(customer, Err(ChangeError::Refused(OrderRefusal::WrongState { .. }))), "{customer:?}");
    t.act("ORD-1", |s| actions::cancel_order(s, &by("operator:test"), Some("settled by phone".to_owned())))
        .await
        .unwrap();
    let ended = t.snapshot("ORD-1").await.order;
    assert_eq!((ended.status, ended.held_for_review), (OrderStatus::CancelledBySystem, false));
    t.assert_sound().await;
}

#[tokio::test]
async fn an_offer_never_outlives_its_order() {
    let t = TestApp::with(|config| config.dispatch.lifetime = secs(150)).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    let lifetime = t.order("ORD-1").await.order.lifetime_deadline;
    t.run_for(secs(120)).await;
    let last = t.live_offer("ORD-1").await;
    assert_eq!((last.driver_id.as_str(), last.expires_at), ("D2", lifetime));

    t.advance(secs(30)).await;
    let too_late = t.accept("ORD-1", "D2", last.id).await;
    assert!(matches!(too_late, Err(ChangeError::Refused(OrderRefusal::OfferExpired))), "{too_late:?}");
    t.run_due().await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystem);
    t.assert_sound().await;
}

#[tokio::test]
async fn whatever_job_comes_first_after_the_lifetime_ends_the_order() {
    let t = TestApp::with(|config| config.dispatch.lifetime = secs(60)).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    // No worker ran, so the attempt's timeout and the lifetime are due together.
    t.advance(secs(70)).await;
    t.run_due().await;
    assert_eq!(
        t.reasons("ORD-1").await,
        ["ORDER_CREATED", "ATTEMPT_STARTED", "ATTEMPT_WITHDRAWN", "LIFETIME_TIMEOUT", "COMPENSATED_UNPAID"]
    );
    t.assert_sound().await;
}

#[tokio::test]
async fn a_paid_order_cancelled_by_its_customer_is_refunded_too() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    t.cancel("ORD-1").await.unwrap();
    t.run_due().await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledByUser);
    assert_eq!(t.messages_of("ORD-1", MANUAL_REFUND_REQUIRED).await, 1);
    // The driver of the order is free again.
    t.order("ORD-2").await;
    t.run_due().await;
    assert_eq!(t.asked("ORD-2").await, "D1");
    t.assert_sound().await;
}
