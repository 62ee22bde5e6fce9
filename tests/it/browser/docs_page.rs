//! The reference of the API in a real browser.

use super::chromium::Chromium;
use crate::support::{Api, TestApp};

#[tokio::test]
async fn reference_shows_operations_without_other_hosts() {
    let t = TestApp::with(|config| config.http.docs = true).await;
    let api = Api::start(&t.app).await;
    let mut browser = Chromium::start().await;
    browser.open(&api.url("/docs#tag/driver-orders/operation/accept_offer")).await;
    browser.until_text("/api/v1/orders/{id}/accept").await;
    // The menu shows the audiences in capitals.
    browser.until_text("PRODUCERS").await;
    browser.until_text("DRIVERS").await;
    browser.assert_no_faults("the reference").await;
    let origin = api.url("/");
    let local = [origin.as_str(), "data:", "blob:", "about:"];
    let of_this_host = |url: &String| local.iter().any(|start| url.starts_with(start));
    assert!(browser.requested.iter().all(of_this_host), "{:?}", browser.requested);
    assert!(browser.requested.iter().any(|url| url.ends_with("/openapi.json")), "{:?}", browser.requested);
}
