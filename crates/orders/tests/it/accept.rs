//! Accepts while slow servers or locks on other orders delay the rest of the work.

use std::sync::Arc;

use model::order::OrderStatus;
use orders::accept;
use test_support::{TestApp, by, eventually, id, lasting_transaction, millis};

// Fault F19e
#[tokio::test]
async fn accept_is_answered_before_offers_are_withdrawn() {
    let t = TestApp::with(|config| config.dispatch.offers_per_driver = 2).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.order("ORD-2").await;
    t.run_due().await;
    let (first, second) = (t.live_offer("ORD-1").await, t.live_offer("ORD-2").await);

    // A lock blocks changes to the other order.
    let mut other = lasting_transaction(&t.postgres).await;
    sqlx::query("SELECT 1 FROM orders WHERE id = 'ORD-2' FOR UPDATE").execute(&mut *other).await.unwrap();
    let app = Arc::new(t.app.clone().with_core(|parts| parts.patience = millis(1)));
    accept::accept_offer(&app.orders, &id("ORD-1"), &"D1".into(), first.id, &by("driver:D1")).await.unwrap();
    // The accept was answered before the other offer is withdrawn.
    eventually("the other offer is being withdrawn", || async {
        t.count(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '-- write change%'",
        )
        .await
            == 1
    })
    .await;
    other.commit().await.unwrap();
    assert_eq!(t.status("ORD-1").await, OrderStatus::DriverAssigned);
    eventually("the other offer is withdrawn", || async {
        t.live_offers("ORD-2").await.iter().all(|offer| offer.id != second.id)
    })
    .await;
}
