//! Addresses that became forbidden, and redirects.

use super::Shop;

#[tokio::test]
async fn forbidden_address_gets_no_later_event() {
    let mut shop = Shop::open().await;
    shop.create("/shop", &["order.created"]).await;
    shop.t.order("ORD-1").await;
    let strict = shop.t.reconfigured(|config| config.http.local_webhooks = false);
    shop.t.app = strict;
    shop.t.run_due().await;
    assert_eq!(shop.receiver.received(), []);
    assert_eq!(shop.t.texts("SELECT last_error FROM outbox").await, ["url must be https"]);
}

#[tokio::test]
async fn endpoint_redirects_are_not_followed() {
    let shop = Shop::open().await;
    shop.create("/shop", &["order.created"]).await;
    shop.receiver.fail(axum::http::StatusCode::TEMPORARY_REDIRECT, 1);
    shop.t.order("ORD-1").await;
    shop.t.run_due().await;
    assert_eq!(shop.receiver.received().len(), 1);
    assert_eq!(shop.t.texts("SELECT last_error FROM outbox").await, ["the receiver answered 307"]);
}
