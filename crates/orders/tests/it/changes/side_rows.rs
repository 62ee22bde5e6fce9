//! Rows of payments, refunds and alerts, which the statement of a change writes.

use std::sync::Arc;

use model::{
    actor::Actor,
    decide::{Change, RefundChange},
    messages,
    order::{EventReason, PaymentStatus},
};
use orders::order_store::write::{OrderWrite, WriteVerdict};
use test_support::TestApp;
use uuid::Uuid;

/// Builds a change from the current state of the order.
async fn change_of(t: &TestApp, order: &str, alter: impl FnOnce(&mut Change)) -> OrderWrite {
    let before = t.snapshot(order).await;
    let mut change = Change::new(&before, Actor::SYSTEM);
    change.record_event(EventReason::AttemptStarted, None);
    alter(&mut change);
    let item = OrderWrite::whole(Uuid::now_v7(), &before, &Arc::new(change), &[], &t.app.config.notifications);
    item.expect("it asks no driver")
}

fn report_payment(change: &mut Change) {
    change.payment_event = Some(("PAY-1".to_owned(), PaymentStatus::Paid));
}

#[tokio::test]
async fn payments_refunds_and_alerts_share_a_commit() {
    let t = TestApp::start().await;
    for order in ["ORD-1", "ORD-2", "ORD-3"] {
        t.order(order).await;
    }
    let paid = change_of(&t, "ORD-1", report_payment).await;
    let refunded = change_of(&t, "ORD-2", |change| change.refund = Some(RefundChange::Ask)).await;
    let alarmed = change_of(&t, "ORD-3", |change| {
        change.notify(messages::unexpected_state(&change.order, "a test", change.at));
    })
    .await;
    let orders = &t.app.orders.rows;
    let (paid, refunded, alarmed) =
        tokio::join!(orders.write_change(paid), orders.write_change(refunded), orders.write_change(alarmed));
    for result in [paid, refunded, alarmed] {
        assert!(matches!(result, Ok(WriteVerdict::Written(_))), "{result:?}");
    }
    let commits = "SELECT count(DISTINCT x) FROM (SELECT xmin::text AS x FROM payment_events UNION ALL
                   SELECT xmin::text FROM refunds UNION ALL SELECT xmin::text FROM alerts UNION ALL
                   SELECT xmin::text FROM orders) w";
    assert_eq!(t.count(commits).await, 1);
    let rows =
        "SELECT (SELECT count(*) FROM payment_events) + (SELECT count(*) FROM refunds) + (SELECT count(*) FROM alerts)";
    assert_eq!(t.count(rows).await, 3);
}

#[tokio::test]
async fn known_payment_event_prevents_the_change() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    let orders = &t.app.orders.rows;
    let first = change_of(&t, "ORD-1", report_payment).await;
    assert!(matches!(orders.write_change(first).await, Ok(WriteVerdict::Written(_))));
    let repeated = change_of(&t, "ORD-1", report_payment).await;
    assert_eq!(orders.write_change(repeated).await.unwrap(), WriteVerdict::Conflict);
    assert_eq!(t.snapshot("ORD-1").await.order.version, 1);
}
