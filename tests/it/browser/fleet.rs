//! Dispatchers, support and operators manage areas, drivers and bindings.

use serde_json::json;

use super::stage::{Console, import_areas, reload_rules};
use crate::support::{ProviderStage, TestApp, secs};
use accounts::api_keys::AccountRole;

const ROW: &str = "tr:has(td.lead)";

#[tokio::test]
async fn dispatcher_sets_and_ends_an_area_override() {
    let t = TestApp::start().await;
    import_areas(&t).await;
    let mut console = Console::open(&t, AccountRole::Dispatcher).await;
    console.visit("/areas").await;
    let area = console.browser.eval("document.querySelector('td.lead').textContent.trim()").await;
    let area = area.as_str().unwrap();
    for (status, minutes, said, shown) in [
        ("FORCE_BUSY", "60", "The override was set.", "Forced busy"),
        ("AUTO", "", "The override was removed.", "Automatic"),
    ] {
        let browser = &mut console.browser;
        browser.click(&format!("tr:has(form[action$='/areas/{area}/override']) summary"), "Override area").await;
        browser.choose("tr details[open] select[name=status]", status).await;
        if !minutes.is_empty() {
            browser.fill("tr details[open] input[name=minutes]", minutes).await;
        }
        browser.fill("tr details[open] input[name=reason]", "a concert").await;
        browser.click("tr details[open] button", "Override area").await;
        browser.until_text(said).await;
        reload_rules(&t).await;
        console.visit("/areas").await;
        let row = format!(
            "[...document.querySelectorAll('{ROW}')].filter((row) => row.querySelector('.lead').textContent.trim() === '{area}')
             .some((row) => row.innerText.includes('{shown}'))"
        );
        console.browser.until(&format!("{area} is shown as {shown}"), &row).await;
        let left = "SELECT count(*) FROM area_overrides WHERE expires_at > dispatchq_now() + interval '50 minutes'";
        assert_eq!(t.count(left).await, i64::from(status == "FORCE_BUSY"));
    }
    let audit =
        t.texts("SELECT concat_ws(' ', what, area_id, actor) FROM admission_audit WHERE what = 'override set'").await;
    assert_eq!(audit, vec![format!("override set {area} dispatcher:test-dispatcher"); 2]);
}

#[tokio::test]
async fn an_operator_sets_a_threshold_and_turns_shadow_mode_on() {
    let t = TestApp::start().await;
    import_areas(&t).await;
    let mut console = Console::open(&t, AccountRole::Operator).await;
    console.visit("/areas").await;
    let browser = &mut console.browser;
    browser.until_text("Thresholds are off").await;
    let area = browser.eval("document.querySelector('td.lead').textContent.trim()").await;
    let area = area.as_str().unwrap();
    browser.click(&format!("tr:has(form[action$='/areas/{area}/threshold']) summary"), "Set threshold").await;
    browser.fill("tr details[open] input[name=max_waiting_orders]", "7").await;
    browser.fill("tr details[open] input[name=reason]", "a concert").await;
    browser.click("tr details[open] button", "Set threshold").await;
    browser.until_text("The threshold was set.").await;
    reload_rules(&t).await;
    let row = format!(
        "[...document.querySelectorAll('{ROW}')].filter((row) => row.querySelector('.lead').textContent.trim() === '{area}')
         .some((row) => row.innerText.includes('0 of 7'))"
    );
    browser.until(&format!("{area} takes 7"), &row).await;

    browser.click("summary", "Change threshold settings").await;
    browser.choose("details[open] select[name=enabled]", "true").await;
    browser.choose("details[open] select[name=shadow_mode]", "true").await;
    browser.fill("details[open] input[name=percentage]", "25").await;
    browser.fill("details[open] input[name=reason]", "a trial").await;
    browser.assert_accessible("for whom thresholds hold").await;
    browser.click("details[open] button", "Change threshold settings").await;
    browser.until_text("Thresholds apply to 25% of users, in all areas, on all channels.").await;
    let flag = t.texts("SELECT concat_ws(' ', enabled, percentage, shadow_mode, version) FROM admission_flag").await;
    assert_eq!(flag, ["t 25 t 2"]);
    let audit =
        "SELECT concat_ws(' ', what, actor, reason) FROM admission_audit WHERE actor LIKE '%test-operator' ORDER BY id";
    assert_eq!(
        t.texts(audit).await,
        ["limits set operator:test-operator a concert", "flag set operator:test-operator a trial"]
    );
    browser.assert_no_faults("areas that are changed").await;
}

#[tokio::test]
async fn an_operator_stops_a_binding_and_starts_it_again() {
    let stage = ProviderStage::start().await;
    stage.run_binding("B-1", "S1", json!({})).await;
    let mut console = Console::open(&stage.t, AccountRole::Operator).await;
    console.visit("/bindings").await;
    let browser = &mut console.browser;
    for (verb, state, shown) in
        [("Stop binding", "STOPPED", "Stopped: stopped by a person"), ("Start binding", "RUNNING", "Running")]
    {
        browser.click(&format!("{ROW} summary"), verb).await;
        browser.fill("tr details[open] input[name=reason]", "maintenance").await;
        if verb == "Stop binding" {
            browser.click("tr details[open] input[name=sure]", "").await;
        }
        browser.click("tr details[open] button", verb).await;
        browser.until_text("The binding received the command.").await;
        browser.until_text(shown).await;
        assert_eq!(stage.t.texts("SELECT state FROM bindings").await, [state]);
    }
    browser.assert_no_faults("a binding that is stopped").await;
}

// The map leads from the whole fleet to a part of it, and from a mark to its page.
#[tokio::test]
async fn map_leads_to_drivers_and_orders() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 300.0), ("D2", 900.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    t.order_of("ORD-2", "RENT", "PAID").await;
    let mut console = Console::open(&t, AccountRole::Viewer).await;
    let browser = &mut console.browser;
    browser.press("g").await;
    browser.press("m").await;
    browser.until_path("/console/map").await;
    browser.until_text("Drivers with an order: 1").await;
    let marks = "document.querySelectorAll('svg a[href*=\"/orders/\"], svg a[href*=\"/drivers/\"]').length";
    assert_eq!(browser.eval(marks).await, 4);
    browser.eval("window.remembered = true").await;
    t.sql("UPDATE drivers SET available = false WHERE id = 'D2'").await;
    t.cancel("ORD-2").await.unwrap();
    browser.until("the map follows", &format!("{marks} === 2")).await;
    assert_eq!(browser.eval("window.remembered").await, true, "the page was never loaded again");

    let centre = "document.querySelector('input[name=at]').value";
    let target = "new URL(document.querySelector(\".moves a[aria-label='Zoom in']\").href).searchParams.get('at')";
    let before = browser.eval(target).await;
    browser.click(".moves a[aria-label='Zoom in']", "+").await;
    browser.until("the view is in the address", "location.search.includes('km=1.000')").await;
    browser.until("the map is loaded", "document.readyState === 'complete'").await;
    assert_eq!(browser.eval(centre).await, before);
    browser.click(".moves a[aria-label='North']", "↑").await;
    browser.until("the centre moved", &format!("{centre} !== {before}")).await;
    browser.click("a.button", "Whole fleet").await;
    browser.until("the whole fleet is shown", "location.search === '' && document.readyState === 'complete'").await;
    browser.eval("document.querySelector('svg a[href$=\"/drivers/D1\"]').dispatchEvent(new MouseEvent('click', { bubbles: true }))").await;
    browser.until_path("/console/drivers/D1").await;
    browser.assert_no_faults("the map of the fleet").await;
}

#[tokio::test]
async fn support_hands_an_otp_in_and_sees_the_transaction_end() {
    const CODE: &str = "739154";
    let stage = ProviderStage::start().await;
    stage.turn_knobs(|knobs| {
        knobs.otp_rate = "1".parse().unwrap();
        knobs.otp_code = CODE.to_owned();
        knobs.otp_lifetime = secs(3600);
    });
    stage.run_binding("B-1", "S1", json!({ "interval_ms": [60000, 60000] })).await;
    stage.t.run_due().await;
    let mut console = Console::open(&stage.t, AccountRole::Support).await;
    console.visit("/bindings").await;
    let browser = &mut console.browser;
    browser.until_text("Waits for an OTP").await;
    browser.click("tr a.id", "B-1").await;
    browser.until_path("/console/bindings/B-1").await;
    browser.until_text("The provider needs an OTP").await;
    browser.assert_accessible("a binding that Waits for an OTP").await;
    browser.eval("document.querySelectorAll('details').forEach((part) => { part.open = false; })").await;
    browser.click("summary", "Submit OTP").await;
    browser.fill("details[open] input[name=otp]", CODE).await;
    browser.click("details[open] button", "Submit OTP").await;
    browser.until_text("The OTP was stored and is being sent to the provider.").await;
    browser.eval("window.remembered = true").await;
    assert!(!browser.eval("document.documentElement.outerHTML").await.as_str().unwrap().contains(CODE));
    assert!(!browser.shows("summary").await, "support has nothing more to do here");
    stage.t.run_due().await;
    browser.until_text("Succeeded").await;
    assert_eq!(browser.eval("window.remembered").await, true, "the page was never loaded again");
    assert_eq!(stage.calls("B-1").await, ["start otp_wanted", "otp success"]);
    browser.assert_no_faults("an OTP that was handed in").await;
}

#[tokio::test]
async fn an_operator_looks_a_driver_up_and_disables_the_driver() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 400.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let mut console = Console::open(&t, AccountRole::Operator).await;
    console.visit("/drivers").await;
    let browser = &mut console.browser;
    browser.click("a.id", "D1").await;
    browser.until_path("/console/drivers/D1").await;
    browser.until_text("Waiting for an answer").await;
    browser.eval("window.remembered = true").await;
    t.accept_offer("ORD-1").await;
    browser.until_text("Has an order").await;
    assert_eq!(browser.eval("window.remembered").await, true, "the page was never loaded again");
    browser.click("summary", "Disable driver").await;
    browser.fill("details[open] input[name=reason]", "complaints of customers").await;
    browser.click("details[open] button", "Disable driver").await;
    browser.until_text("The driver was disabled").await;
    browser.until_path("/console/drivers/D1").await;
    assert_eq!(t.texts("SELECT id FROM drivers WHERE disabled_at IS NOT NULL").await, ["D1"]);
    browser.click("#live td a.id", "ORD-1").await;
    browser.until_path("/console/orders/ORD-1").await;
    browser.assert_no_faults("a driver").await;
}
