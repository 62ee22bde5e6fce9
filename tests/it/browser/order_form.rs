//! Staff create an order by hand and change its contents.

use serde_json::json;

use super::{chromium::Chromium, stage::Console};
use crate::support::TestApp;
use accounts::api_keys::AccountRole;

const PHONE: u32 = 390;

async fn fill_places(browser: &mut Chromium) {
    browser.fill("input[name=customer_id]", "CUS-7").await;
    browser.fill("input[name=pickup]", "-6.2088, 106.8456").await;
    browser.fill("input[name=pickup_address]", "Jalan Thamrin 9").await;
    browser.fill("input[name=dropoff]", "-6.1754, 106.8272").await;
    browser.fill("input[name=dropoff_address]", "Jalan Merdeka 1").await;
}

// Rule U1: A bad value shows the form again, with every value and with the message at the field.
#[tokio::test]
async fn dispatcher_creates_order_for_a_caller() {
    let t = TestApp::start().await;
    let mut console = Console::open(&t, AccountRole::Dispatcher).await;
    console.visit("/orders").await;
    let browser = &mut console.browser;
    browser.click("a.button", "New order").await;
    browser.until_path("/console/new-order").await;
    browser.resize(PHONE, 844, true).await;
    // The pickup is required. The browser does not send the form without it.
    browser.choose("select[name=service_type]", "RIDE").await;
    browser.click("form.long button", "Create order").await;
    browser.until("the pickup is missing", "Boolean(document.querySelector('input[name=pickup]:invalid:focus'))").await;
    fill_places(browser).await;
    browser.fill("input[name=contact_name]", "Ana").await;
    browser.fill("input[name=contact_phone]", "0812").await;
    browser.fill("textarea[name=notes]", "Two suitcases.").await;
    browser.fill("input[name=metadata_key]", "crm_id").await;
    browser.fill("input[name=metadata_value]", "7").await;
    browser.click("form.long button", "Create order").await;
    browser.until_text("Write an existing phone number").await;
    assert_eq!(browser.status, 422);
    browser.until("the refusal has the focus", "document.activeElement?.id === 'refused'").await;
    browser.until_path("/console/new-order").await;
    let described = "(() => { const field = document.querySelector('[aria-invalid=true]');
        return [field.name, document.getElementById(field.getAttribute('aria-describedby')).textContent.includes('phone number')]; })()";
    assert_eq!(browser.eval(described).await, json!(["contact_phone", true]));
    browser.assert_accessible("a refused order").await;
    browser.assert_fits("a refused order", PHONE).await;
    browser.take_faults();
    let kept = "['customer_id', 'pickup_address', 'dropoff', 'contact_name', 'notes', 'metadata_value']
        .map((name) => document.querySelector(`[name=${name}]`).value)";
    let expected = json!(["CUS-7", "Jalan Thamrin 9", "-6.1754, 106.8272", "Ana", "Two suitcases.", "7"]);
    assert_eq!(browser.eval(kept).await, expected);

    browser.click("form.long button", "Add rows for values").await;
    browser.until("rows are added", "document.querySelectorAll('[name=metadata_key]').length === 8").await;
    assert_eq!(browser.eval(kept).await, expected);
    browser.fill("input[name=contact_phone]", "+62 812-3456-789").await;
    browser.click("form.long button", "Create order").await;
    browser.until_text("The order was created.").await;
    browser.until_text("Jalan Merdeka 1").await;
    assert!(browser.eval("location.pathname").await.as_str().unwrap().starts_with("/console/orders/ORD-"));
    browser.assert_fits("a new order", PHONE).await;
    browser.assert_no_faults("a new order").await;
    assert_eq!(
        t.texts("SELECT concat_ws(' ', customer_id, service_type, status) FROM orders").await,
        ["CUS-7 RIDE DISPATCHING"]
    );
    let contact = "SELECT contact->>'phone' FROM order_details";
    assert_eq!(t.texts(contact).await, ["+628123456789"]);
    t.assert_sound().await;
}

/// Sends the form without leaving the page.
const SEND: &str = "fetch(document.querySelector('form.long').action, { method: 'POST',
    body: new URLSearchParams(new FormData(document.querySelector('form.long'))) }).then((answer) => new URL(answer.url).pathname)";

#[tokio::test]
async fn form_sent_twice_creates_one_order() {
    let t = TestApp::start().await;
    let mut console = Console::open(&t, AccountRole::Support).await;
    console.visit("/new-order").await;
    let browser = &mut console.browser;
    browser.choose("select[name=service_type]", "RIDE").await;
    fill_places(browser).await;
    let first = browser.eval(SEND).await;
    browser.click("form.long button", "Create order").await;
    browser.until_text("The order was created.").await;
    assert_eq!(browser.eval("location.pathname").await, first);
    assert_eq!(t.count("SELECT count(*) FROM orders").await, 1);
    browser.assert_no_faults("an order that was sent twice").await;
}

#[tokio::test]
async fn form_works_without_scripts() {
    let t = TestApp::start().await;
    let mut console = Console::open(&t, AccountRole::Admin).await;
    console.browser.call("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
    console.visit("/new-order").await;
    let browser = &mut console.browser;
    browser.choose("select[name=service_type]", "RIDE").await;
    fill_places(browser).await;
    browser.fill("input[name=pickup]", "Monas").await;
    browser.click("form.long button", "Add rows for values").await;
    browser.until("rows are added", "document.querySelectorAll('[name=metadata_key]').length === 8").await;
    browser.click("form.long button", "Create order").await;
    browser.until_text("Write a latitude from -90 to 90").await;
    browser.take_faults();
    browser.fill("input[name=pickup]", "-6.2088, 106.8456").await;
    browser.click("form.long button", "Create order").await;
    browser.until_text("The order was created.").await;
    assert_eq!(t.texts("SELECT customer_id FROM orders").await, ["CUS-7"]);
}

#[tokio::test]
async fn two_people_change_one_order() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    let mut console = Console::open(&t, AccountRole::Dispatcher).await;
    let mut other = Console::open(&t, AccountRole::Support).await;
    console.visit("/orders/ORD-1").await;
    let browser = &mut console.browser;
    browser.click("a.button", "Change contents").await;
    browser.until_path("/console/orders/ORD-1/contents").await;
    other.visit("/orders/ORD-1/contents").await;
    other.browser.fill("textarea[name=notes]", "Blue gate.").await;
    other.browser.click("form.long button", "Save changes").await;
    other.browser.until_text("The contents of the order were changed.").await;

    let browser = &mut console.browser;
    browser.fill("textarea[name=notes]", "Ring twice.").await;
    browser.click("form.long button", "Save changes").await;
    browser.until_text("support:test-support changed notes").await;
    browser.until_text("Stored value: Blue gate.").await;
    assert_eq!(browser.status, 409);
    browser.resize(PHONE, 844, true).await;
    browser.assert_accessible("a conflict").await;
    browser.assert_fits("a conflict", PHONE).await;
    browser.take_faults();
    browser.click("form.long button", "Save changes").await;
    browser.until_text("The contents of the order were changed.").await;
    browser.until_text("Ring twice.").await;
    assert_eq!(t.texts("SELECT notes FROM order_details").await, ["Ring twice."]);
    t.assert_sound().await;
}
