//! Gauges: how the installation stands at the moment of a scrape.

use dispatch::orders::{OrderStatus, PaymentStatus, actions};

use crate::support::{Counting, Scrape, TestApp, by, secs};

const HOUR: u64 = 3600;

async fn gauge(address: &str, name: &str) -> f64 {
    let scrape = Scrape::ask(address).await;
    assert!(scrape.has(name), "no {name}");
    scrape.value(name)
}

#[tokio::test]
async fn refunds_that_nobody_has_begun_are_a_queue_with_an_age() {
    let (counting, t) = (Counting::start(), TestApp::start().await);
    let (at, _stop) = counting.shown(&t.app).await;
    let refunds = async || {
        let scrape = Scrape::ask(&at).await;
        (scrape.value("dispatchq_manual_refund_queue"), scrape.value("dispatchq_manual_refund_oldest_seconds"))
    };
    assert_eq!(refunds().await, (0.0, 0.0));

    t.order_of("BY-USER", "RIDE", "PAID").await;
    t.cancel("BY-USER").await.unwrap();
    t.order_of("UNPAID", "RIDE", "UNPAID").await;
    t.cancel("UNPAID").await.unwrap();
    assert_eq!(refunds().await, (1.0, 0.0));
    t.advance(secs(HOUR)).await;
    t.order_of("BY-SYSTEM", "RIDE", "SETTLEMENT").await;
    t.run_for(secs(HOUR)).await;
    assert_eq!(t.status("BY-SYSTEM").await, OrderStatus::CancelledBySystemAfterPayment);
    assert_eq!(refunds().await, (2.0, 7200.0));

    // Money that comes long after the order had ended is not overdue at once.
    t.act("BY-USER", |s| actions::start_refund(s, &by("operator:test"), None)).await.unwrap();
    t.act("BY-SYSTEM", |s| actions::start_refund(s, &by("operator:test"), None)).await.unwrap();
    assert_eq!(refunds().await, (0.0, 0.0));
    t.act("UNPAID", |s| actions::record_payment(s, &by("producer:test"), "EV-1", &PaymentStatus::Paid)).await.unwrap();
    t.advance(secs(60)).await;
    assert_eq!(refunds().await, (1.0, 60.0));
}

#[tokio::test]
async fn what_waits_for_somebody_is_counted() {
    let (counting, t) = (Counting::start(), TestApp::start().await);
    let (at, _stop) = counting.shown(&t.app).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    assert_eq!(gauge(&at, "dispatchq_orders_retrying").await, 0.0);
    t.run_for(secs(120)).await;
    assert_eq!(gauge(&at, "dispatchq_orders_retrying").await, 1.0, "the pause after the first attempt");
    t.run_for(secs(15)).await;
    assert_eq!(gauge(&at, "dispatchq_orders_retrying").await, 1.0, "the second attempt");
    t.accept_offer("ORD-1").await;
    assert_eq!(gauge(&at, "dispatchq_orders_retrying").await, 0.0);

    t.order_of("ORD-2", "DELIVERY", "DISPUTED").await;
    t.run_for(secs(1800)).await;
    assert_eq!(gauge(&at, "dispatchq_orders_held").await, 1.0);
    assert_eq!(gauge(&at, "dispatchq_workers").await, 0.0);
    assert_eq!(gauge(&at, "dispatchq_queue_oldest_due_seconds{queue=\"dispatch-queue\"}").await, 0.0);
    t.order("ORD-3").await;
    t.advance(secs(7)).await;
    assert_eq!(gauge(&at, "dispatchq_queue_due{queue=\"dispatch-queue\"}").await, 1.0);
    assert_eq!(gauge(&at, "dispatchq_queue_oldest_due_seconds{queue=\"dispatch-queue\"}").await, 7.0);
}

#[tokio::test]
async fn what_cannot_be_read_is_not_a_number_and_the_missing_server_is_named() {
    let (counting, mut t) = (Counting::start(), TestApp::start().await);
    let (at, _stop) = counting.shown(&t.app).await;
    let up = |scrape: &Scrape| {
        ["redis", "postgres"].map(|d| scrape.value(&format!("dispatchq_dependency_up{{dependency=\"{d}\"}}")))
    };
    let scrape = Scrape::ask(&at).await;
    assert_eq!(up(&scrape), [1.0, 1.0]);
    assert_eq!(scrape.value("dispatchq_queue_depth{queue=\"dispatch-queue\"}"), 0.0);

    t.redis.kill().await;
    let scrape = Scrape::ask(&at).await;
    assert_eq!(up(&scrape), [0.0, 1.0]);
    assert!(scrape.value("dispatchq_queue_depth{queue=\"dispatch-queue\"}").is_nan());
    assert!(scrape.value("dispatchq_workers").is_nan());
    assert_eq!(scrape.value("dispatchq_manual_refund_queue"), 0.0);

    t.postgres.stop().await.unwrap();
    let scrape = Scrape::ask(&at).await;
    assert_eq!(up(&scrape), [0.0, 0.0]);
    assert!(scrape.value("dispatchq_manual_refund_queue").is_nan());
    assert!(scrape.value("dispatchq_outbox_oldest_seconds").is_nan());
}
