//! Staff find, follow and change orders.

use serde_json::json;

use super::{
    chromium::Chromium,
    stage::{Console, let_wait, owe},
};
use crate::support::TestApp;
use accounts::api_keys::AccountRole;
use model::decide::actions;

/// Marks the page. A reload removes the mark.
const REMEMBER: &str = "window.remembered = true";

/// Waits until the order page shows this state without a reload.
async fn until_state(browser: &mut Chromium, state: &str) {
    let shown = format!("document.querySelector('#live .chip').textContent.endsWith('{state}')");
    browser.until(&format!("the order is {state}"), &shown).await;
}

#[tokio::test]
async fn an_order_is_found_and_followed_while_it_is_dispatched() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.order_of("ORD-2", "DELIVERY", "PAID").await;
    t.sql("UPDATE orders SET customer_id = 'CUS-7' WHERE id = 'ORD-1'").await;
    let mut console = Console::open(&t, AccountRole::Viewer).await;
    console.visit("/orders").await;
    let browser = &mut console.browser;
    browser.until_text("ORD-2").await;

    // Finds the order by customer id with the keyboard: the text, Enter; `j`, Enter.
    browser.fill("#search", "CUS-7").await;
    browser.press_enter().await;
    browser.until("the search is in the address", "location.search.includes('q=CUS-7')").await;
    let alone = "document.readyState === 'complete' && document.querySelectorAll('tbody tr').length === 1";
    browser.until("ORD-1 alone is listed", alone).await;
    browser.press("j").await;
    browser.until("the row is marked", "Boolean(document.querySelector('tr.here'))").await;
    browser.press_enter().await;
    browser.until_path("/console/orders/ORD-1").await;

    until_state(browser, "Searching for a driver").await;
    browser.eval(REMEMBER).await;
    t.run_due().await;
    browser.until_text("Offers, newest first").await;
    t.accept_offer("ORD-1").await;
    until_state(browser, "Driver on the way").await;
    let driver = "D1".into();
    t.act("ORD-1", |s| actions::record_pickup(s, &driver)).await.unwrap();
    until_state(browser, "Passenger on board").await;
    t.act("ORD-1", |s| actions::complete_trip(s, &driver)).await.unwrap();
    until_state(browser, "Completed").await;
    assert_eq!(browser.eval("window.remembered").await, true, "the page was never loaded again");
    browser.assert_no_faults("an order that is followed").await;
}

// Rule U1: A refused form stays open with its values, and the refusal gets the focus.
#[tokio::test]
async fn dispatcher_is_alerted_and_assigns_from_desk() {
    let t = TestApp::start().await;
    let mut console = Console::open(&t, AccountRole::Dispatcher).await;
    console.visit("/desk").await;
    let browser = &mut console.browser;
    browser.until_text("No order waits for a person").await;
    let_wait(&t, "WAITS").await;
    browser.until("the title counts", "document.title === '(1) Desk · dispatchq'").await;
    t.drivers(&[("D1", 100.0)]).await;

    browser.click("tr summary", "Decide").await;
    browser.fill("tr input[name=reason]", "by phone").await;
    browser.fill("tr input[name=driver_id]", "D9").await;
    browser.click("tr button", "Assign driver").await;
    browser.until_text("There is no driver with this id").await;
    assert_eq!(browser.status, 409);
    // The form stays open as it was sent, and the refusal has the focus. A reload shows the page and sends nothing.
    browser.until("the refusal has the focus", "document.activeElement?.id === 'refused'").await;
    browser.until_path("/console/desk").await;
    let kept = "document.querySelector('tr details[open] input[name=reason]').value";
    assert_eq!(browser.eval(kept).await, "by phone");
    browser.assert_accessible("a refused action").await;
    browser.take_faults();
    browser.fill("tr details[open] input[name=driver_id]", "D1").await;
    browser.click("tr details[open] button", "Assign driver").await;
    browser.until_text("The driver was assigned.").await;
    browser.until_text("No order waits for a person").await;
    browser.until("it is said once", "!location.search.includes('did')").await;
    assert_eq!(t.texts("SELECT concat_ws(' ', status, driver_id) FROM orders").await, ["DRIVER_ASSIGNED D1"]);
    let by = "SELECT concat_ws(' ', actor, detail) FROM order_events WHERE reason = 'ASSIGNED_BY_HAND'";
    assert!(t.texts(by).await[0].starts_with("dispatcher:test-dispatcher"));
    t.assert_sound().await;
}

#[tokio::test]
async fn dispatcher_takes_order_and_assigns_nearest_driver() {
    let t = TestApp::start().await;
    let_wait(&t, "WAITS").await;
    t.drivers(&[("D2", 400.0), ("D1", 100.0)]).await;
    let mut other = Console::open(&t, AccountRole::Operator).await;
    other.visit("/desk").await;
    other.browser.until_text("Claim order").await;
    other.browser.eval(REMEMBER).await;
    let mut console = Console::open(&t, AccountRole::Dispatcher).await;
    console.visit("/desk").await;
    let browser = &mut console.browser;
    browser.click("tr button", "Claim order").await;
    browser.until_text("You now handle this order").await;
    browser.until_text("Release claim").await;
    other.browser.until_text("dispatcher:test-dispatcher").await;
    other.browser.until_text("Take over order").await;

    browser.press("j").await;
    let first = "document.querySelector('tr.here td.lead')?.textContent.trim() === 'D1'";
    browser.until("the nearest driver is the first row", first).await;
    browser.click("tr summary", "Assign D1").await;
    browser.fill("tr details[open] input[name=reason]", "asked by phone").await;
    browser.click("tr details[open] button", "Assign driver").await;
    browser.until_text("The driver was assigned.").await;
    browser.until_text("No order waits for a person").await;
    other.browser.until_text("No order waits for a person").await;
    assert_eq!(other.browser.eval("window.remembered").await, true, "the page was never loaded again");
    assert_eq!(t.texts("SELECT concat_ws(' ', status, driver_id) FROM orders").await, ["DRIVER_ASSIGNED D1"]);
    let taken = "SELECT concat_ws(' ', action, subject, actor) FROM audit_staff_actions";
    assert_eq!(t.texts(taken).await, ["ORDER_TAKEN WAITS dispatcher:test-dispatcher"]);
    browser.assert_no_faults("an order that was taken").await;
    t.assert_sound().await;
}

#[tokio::test]
async fn support_takes_a_refund_to_its_end() {
    let t = TestApp::start().await;
    owe(&t, "OWED").await;
    let mut console = Console::open(&t, AccountRole::Support).await;
    console.visit("/refunds").await;
    let browser = &mut console.browser;
    browser.click("tr summary", "Start refund").await;
    browser.click("tr button", "Start refund").await;
    browser.until_text("The refund was started.").await;
    assert_eq!(t.texts("SELECT status FROM orders").await, ["REFUND_PENDING"]);

    // A note about the repayment is required. The browser does not send the form without it.
    browser.click("tr summary", "Complete refund").await;
    browser.click("tr button", "Complete refund").await;
    browser.until("the note is missing", "Boolean(document.querySelector('tr input[name=note]:invalid:focus'))").await;
    browser.fill("tr input[name=note]", "bank transfer 17").await;
    browser.click("tr button", "Complete refund").await;
    browser.until_text("The refund was completed.").await;
    browser.until_text("No refunds owed").await;
    assert_eq!(t.texts("SELECT status FROM orders").await, ["REFUNDED"]);
    let note = "SELECT concat_ws(' ', actor, detail) FROM order_events WHERE reason = 'REFUNDED'";
    assert_eq!(t.texts(note).await, ["support:test-support bank transfer 17"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn any_id_is_found_from_every_page() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.order("ORD-2").await;
    t.sql("UPDATE orders SET customer_id = 'CUS-7'").await;
    let mut console = Console::open(&t, AccountRole::Viewer).await;
    console.visit("/alerts").await;
    let browser = &mut console.browser;
    browser.press("?").await;
    browser.until_text("Go to a page").await;
    browser.assert_accessible("the list of keys").await;
    browser.click("#help button", "Close").await;
    browser.press("/").await;
    browser.until("the search has the focus", "document.activeElement?.id === 'find'").await;
    browser.fill("#find", "CUS-7").await;
    browser.press_enter().await;
    browser.until_path("/console/search").await;
    browser.until_text("Results for CUS-7.").await;
    browser.until("both are listed", "document.querySelectorAll('tbody tr').length === 2").await;
    assert_eq!(browser.eval("document.getElementById('find').value").await, "CUS-7");

    browser.fill("#find", "D1").await;
    browser.press_enter().await;
    browser.until_path("/console/drivers/D1").await;
    for (key, path) in [("o", "/console/orders"), ("r", "/console/refunds"), ("n", "/console")] {
        browser.press("g").await;
        browser.press(key).await;
        browser.until_path(path).await;
    }
    browser.assert_no_faults("a search").await;
}

#[tokio::test]
async fn selected_alerts_stay_selected_until_acknowledged() {
    let t = TestApp::start().await;
    owe(&t, "OWED-1").await;
    owe(&t, "OWED-2").await;
    let mut console = Console::open(&t, AccountRole::Support).await;
    console.visit("/alerts").await;
    let browser = &mut console.browser;
    browser.click("input[aria-label='Select the alert about OWED-1']", "").await;
    browser.click("input[aria-label='Select the alert about OWED-2']", "").await;
    let waits = "document.getElementById('live-state').textContent === 'Waiting while you read'";
    browser.until("the page waits", waits).await;
    browser.fill("#ack-several input[name=note]", "paid back by hand").await;
    browser.click("button", "Acknowledge selected alerts").await;
    browser.until_text("The alerts were acknowledged.").await;
    browser.until_text("No open alerts").await;
    assert_eq!(t.count("SELECT count(*) FROM alerts WHERE acked_at IS NULL").await, 0);
    browser.assert_no_faults("alerts that are acknowledged").await;
}

#[tokio::test]
async fn saved_filter_outlives_its_session() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    t.order_of("ORD-2", "DELIVERY", "PAID").await;
    let key = t.key(AccountRole::Dispatcher).await;
    let mut console = Console::open(&t, AccountRole::Support).await;
    let origin = console.api.url("");
    let browser = &mut console.browser;
    browser.sign_out().await;
    browser.sign_in(&origin, "/console/orders", &key).await;
    browser.choose("select[name=service_type]", "DELIVERY").await;
    browser.click(".filters button", "Search").await;
    browser.until("the filter is in the address", "location.search.includes('service_type=DELIVERY')").await;
    browser.click("summary", "Save filter").await;
    browser.fill("details[open] input[name=name]", "Parcels").await;
    browser.click("details[open] button", "Save filter").await;
    browser.until_text("The filter was saved.").await;
    browser.assert_accessible("a saved filter").await;

    browser.sign_out().await;
    browser.sign_in(&origin, "/console/orders", &key).await;
    browser.until_text("ORD-1").await;
    browser.click(".saved a", "Parcels").await;
    let alone = "document.readyState === 'complete' && document.querySelectorAll('tbody tr').length === 1";
    browser.until("ORD-2 alone is listed", alone).await;
    assert!(browser.shows(".saved a[aria-current]").await);
    browser.click("summary", "Delete saved filter").await;
    browser.choose("details[open] select[name=filter]", "Parcels").await;
    browser.click("details[open] button", "Delete saved filter").await;
    browser.until_text("The filter was deleted.").await;
    assert!(!browser.shows(".saved a").await);
    assert_eq!(t.count("SELECT count(*) FROM saved_filters").await, 0);
    browser.assert_no_faults("a saved filter").await;
}

/// The response to a refresh may arrive after a person has opened a form. It must not close the form.
#[tokio::test]
async fn a_form_that_is_filled_in_stays_open() {
    let t = TestApp::start().await;
    let_wait(&t, "WAITS").await;
    let mut console = Console::open(&t, AccountRole::Dispatcher).await;
    console.visit("/desk").await;
    let browser = &mut console.browser;
    browser.call("Fetch.enable", json!({ "patterns": [{ "requestStage": "Response" }] })).await;
    browser.until_refresh_is_held_back().await;
    browser.click("tr summary", "Decide").await;
    browser.fill("tr input[name=reason]", "by phone").await;
    browser.eval(REMEMBER).await;
    browser.eval("document.body.addEventListener('htmx:afterRequest', () => { window.answered = true; })").await;
    for request in std::mem::take(&mut browser.held_back) {
        browser.call("Fetch.continueRequest", json!({ "requestId": request })).await;
    }
    browser.call("Fetch.disable", json!({})).await;
    browser.until("the refresh was answered", "window.answered === true").await;
    assert_eq!(browser.eval("document.querySelector('tr input[name=reason]').value").await, "by phone");
    assert!(browser.shows("tr input[name=reason]").await, "the form is open");

    // Refreshes continue after the person leaves the form.
    browser.eval("document.activeElement.blur()").await;
    browser.click("tr summary", "Decide").await;
    let_wait(&t, "WAITS-2").await;
    browser.until_text("WAITS-2").await;
    assert_eq!(browser.eval("window.remembered").await, true, "the page was never loaded again");
}

/// A refresh keeps the keyboard focus.
#[tokio::test]
async fn the_focus_outlives_a_refresh() {
    let t = TestApp::start().await;
    let_wait(&t, "WAITS").await;
    let mut console = Console::open(&t, AccountRole::Viewer).await;
    console.visit("/desk").await;
    let browser = &mut console.browser;
    browser.until_text("WAITS").await;
    browser.eval("document.querySelector('tr a.id').focus()").await;
    browser.eval(REMEMBER).await;
    let_wait(&t, "WAITS-2").await;
    browser.until_text("WAITS-2").await;
    assert_eq!(browser.eval("window.remembered").await, true, "the page was never loaded again");
    assert_eq!(browser.eval("document.activeElement.textContent").await, "WAITS");
    browser.assert_no_faults("a refresh with a focus").await;
}

/// The page offers no outdated action, and its content is as recent as it states.
#[tokio::test]
async fn order_page_follows_changes_unless_form_is_open() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let mut console = Console::open(&t, AccountRole::Dispatcher).await;
    console.visit("/orders/ORD-1").await;
    let browser = &mut console.browser;
    browser.until_text("Assign driver").await;
    browser.eval(REMEMBER).await;
    t.accept_offer("ORD-1").await;
    browser.until_text("Release from driver").await;
    browser
        .until("the driver is among the facts", "Boolean(document.querySelector('.facts a[href$=\"/drivers/D1\"]'))")
        .await;
    assert!(!browser.eval("document.body.innerText.includes('Assign driver')").await.as_bool().unwrap());
    assert_eq!(browser.eval("window.remembered").await, true, "the page was never loaded again");

    let state = |word: &str| format!("document.getElementById('live-state').textContent === '{word}'");
    browser.until("the page is live", &state("Live")).await;
    browser.click("summary", "Release from driver").await;
    browser.until("the page says that it waits", &state("Waiting while you read")).await;
    browser.click("summary", "Release from driver").await;
    browser.until("the page is live again", &state("Live")).await;
    browser.assert_no_faults("an order whose buttons follow").await;
}
