//! The page for customers in a real browser at 360 px.

use serde_json::json;

use super::chromium::Chromium;
use crate::support::{Api, TestApp, ride_with_id};
use accounts::api_keys::AccountRole;
use settings::Config;

/// Width of a small phone in pixels.
const WIDTH: u32 = 360;
/// Makes the page update at once.
const UPDATE: &str = "window.dispatchEvent(new Event('online')), true";

fn with_page(config: &mut Config) {
    config.http.tracking = true;
    config.http.public_url = "https://dispatch.example.com".to_owned();
}

/// Creates an order and returns the path of its link.
async fn create_order(t: &TestApp, api: &Api, id: &str) -> String {
    let made = api.post("/api/v1/orders", &t.key(AccountRole::Producer).await, ride_with_id(id)).await;
    made.text("tracking_url").strip_prefix("https://dispatch.example.com").unwrap().to_owned()
}

/// Checks width, contrast and labels, in light and dark mode.
async fn check_looks(phone: &mut Chromium, what: &str) {
    for is_dark in [false, true] {
        phone.set_dark(is_dark).await;
        phone.assert_fits(what, WIDTH).await;
        phone.assert_accessible(what).await;
    }
}

async fn set_offline(phone: &mut Chromium, is_offline: bool) {
    let network = json!({ "offline": is_offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1 });
    phone.call("Network.emulateNetworkConditions", network).await;
}

#[tokio::test]
async fn customer_follows_the_driver_on_a_phone() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("DRV-1", 1_234.0)]).await;
    t.sql("UPDATE drivers SET name = 'Ana Maria Santos', lng = lng + 0.01").await;
    let link = create_order(&t, &api, "ORD-1").await;
    let mut phone = Chromium::start().await;
    phone.resize(WIDTH, 740, true).await;
    phone.open(&api.url(&link)).await;
    phone.until_text("Looking for a driver").await;
    phone.eval("window.remembered = true").await;
    check_looks(&mut phone, "search").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    phone.eval(UPDATE).await;
    phone.until_text("Ana is on the way").await;
    phone.until("the map is shown", "Boolean(document.querySelector('svg.map .driver'))").await;
    assert_eq!(phone.eval("document.title").await, "Ana is on the way");
    check_looks(&mut phone, "way").await;
    phone.assert_no_faults("the way").await;
    t.carry_out("ORD-1", "DRV-1").await;
    phone.eval(UPDATE).await;
    phone.eval(UPDATE).await;
    phone.until_text("the order has ended").await;
    check_looks(&mut phone, "end").await;
    assert_eq!(phone.eval("window.remembered").await, true, "the page was never loaded again");
}

#[tokio::test]
async fn tracking_page_recovers_from_an_outage() {
    let t = TestApp::with(with_page).await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("DRV-1", 100.0)]).await;
    let link = create_order(&t, &api, "ORD-1").await;
    let mut phone = Chromium::start().await;
    phone.open(&api.url(&link)).await;
    set_offline(&mut phone, true).await;
    phone.eval(UPDATE).await;
    phone.until_text("No connection").await;
    phone.until_text("Looking for a driver").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    set_offline(&mut phone, false).await;
    phone.until_text("Your driver is on the way").await;
    phone.until("no problem is shown", "document.getElementById('connection').hidden").await;
}
