//! Alerts with their cause, and acknowledgement of several at once.

use super::{Browser, place};
use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp};

/// Ids of the alerts about an order.
async fn alert_of(t: &TestApp, order: &str) -> String {
    t.count(&format!("SELECT id FROM alerts WHERE order_id = '{order}'")).await.to_string()
}

/// Creates paid orders and cancels them, so that support gets an alert about each.
async fn owe(t: &TestApp, orders: &[&str]) {
    for order in orders {
        t.order_of(order, "RIDE", "PAID").await;
        t.cancel(order).await.unwrap();
    }
}

#[tokio::test]
async fn alert_shows_its_cause() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    owe(&t, &["ORD-1", "ORD-2", "ORD-3"]).await;
    t.sql(
        "UPDATE alerts SET payload = '{\"reason\": \"the customer <cancelled>\"}' WHERE order_id = 'ORD-1';
         UPDATE alerts SET payload = '{\"attempts\": 4}' WHERE order_id = 'ORD-2';
         UPDATE alerts SET payload = '{\"trx_id\": \"B-1.7\"}' WHERE order_id = 'ORD-3'",
    )
    .await;
    let page = viewer.text("/console/alerts").await;
    for cause in ["The customer &#60;cancelled&#62;.", "Attempts: 4", "Transaction B-1.7"] {
        assert!(page.contains(cause), "{cause}: {page}");
    }
    assert!(!page.contains("ack-several") && !page.contains("type=\"checkbox\""), "a viewer only reads: {page}");
}

#[tokio::test]
async fn several_alerts_are_acknowledged_with_one_note() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let support = Browser::signed_in(&t, &api, AccountRole::Support).await;
    owe(&t, &["ORD-1", "ORD-2", "ORD-3"]).await;
    let (first, second) = (alert_of(&t, "ORD-1").await, alert_of(&t, "ORD-2").await);
    let page = support.text("/console/alerts").await;
    assert!(page.contains(&format!("form=\"ack-several\" name=\"id\" value=\"{first}\"")), "{page}");
    let form = [("id", first.as_str()), ("id", second.as_str()), ("note", "paid back by hand")];
    for (form, status) in [
        (&form[..2], 422),
        (&form[2..], 422),
        (&[("id", "x"), ("note", "y")][..], 404),
        (&[("id", first.as_str()), ("id", "999999"), ("note", "y")][..], 404),
    ] {
        assert_eq!(support.post("/console/alerts/ack", form).await.status(), status, "{form:?}");
    }
    assert_eq!(t.count("SELECT count(*) FROM alerts WHERE acked_at IS NOT NULL").await, 0, "none of a refused form");
    for _ in 0..2 {
        let acked = support.post("/console/alerts/ack", &form).await;
        assert_eq!(place(&acked), "/console/alerts?did=ack-several");
    }
    assert_eq!(
        t.texts(
            "SELECT concat_ws(' ', order_id, acked_by, ack_note) FROM alerts WHERE acked_at IS NOT NULL ORDER BY 1"
        )
        .await,
        ["ORD-1 support:test-support paid back by hand", "ORD-2 support:test-support paid back by hand"]
    );
}

#[tokio::test]
async fn dispatcher_acknowledges_no_alert_for_support() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    owe(&t, &["ORD-1"]).await;
    let id = alert_of(&t, "ORD-1").await;
    assert!(!dispatcher.text("/console/alerts").await.contains("type=\"checkbox\""));
    assert_eq!(dispatcher.post("/console/alerts/ack", &[("id", &id), ("note", "y")]).await.status(), 403);
    assert_eq!(t.count("SELECT count(*) FROM alerts WHERE acked_at IS NOT NULL").await, 0);
}
