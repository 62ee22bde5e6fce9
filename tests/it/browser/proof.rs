//! The header shows how far the history is proven and leads to each violation.

use super::stage::Console;
use crate::support::{TestApp, secs};
use accounts::api_keys::AccountRole;
use maintenance::proof::slice;
use settings::{ScheduledTask, TaskSchedule};

#[tokio::test]
async fn violation_opens_from_the_header() {
    let t = TestApp::with(|config| {
        config.schedules = [(ScheduledTask::Proof, TaskSchedule::Every(secs(5)))].into();
    })
    .await;
    t.order("ORD-1").await;
    t.cancel("ORD-1").await.unwrap();
    t.sql("DELETE FROM order_events WHERE order_id = 'ORD-1' AND reason = 'CANCELLED_BY_USER'").await;
    slice::run(&t.app.maintenance).await.unwrap();
    t.advance(secs(4)).await;
    let event = t.count("SELECT event FROM proof_place").await;
    let mut console = Console::open(&t, AccountRole::Operator).await;
    console.visit("/orders").await;
    let browser = &mut console.browser;
    browser.until_text(&format!("Proven until event {event}, 4 s ago")).await;
    browser.until_text("Open violations: 1").await;
    browser.click("#proof a", &format!("Proven until event {event}, 4 s ago")).await;
    browser.until_path("/console/proof").await;
    browser.click("td a", "unbroken_chain").await;
    browser.until_text("is CANCELLED_BY_USER but its history ends in DISPATCHING").await;
    browser.until_text("each event starts in the state in which the previous event ended").await;
    browser.until_text("ORDER_CREATED").await;
    browser.assert_no_faults("a violation").await;
    browser.assert_accessible("a violation").await;
}
