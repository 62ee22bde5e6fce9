//! Areas and bindings as dispatchers and operators decide about them.

use dispatch::accounts::api_keys::AccountRole;
use serde_json::json;

use super::stage::{Console, import_areas, reload_rules};
use crate::support::{ProviderStage, TestApp};

const ROW: &str = "tr:has(td.lead)";

#[tokio::test]
async fn a_dispatcher_overrides_an_area_for_an_hour_and_ends_it() {
    let t = TestApp::start().await;
    import_areas(&t).await;
    let mut console = Console::open(&t, AccountRole::Dispatcher).await;
    console.visit("/areas").await;
    let browser = &mut console.browser;
    let area = browser.eval("document.querySelector('td.lead').textContent.trim()").await;
    let area = area.as_str().unwrap();
    for (status, minutes, said, shown) in [
        ("FORCE_BUSY", "60", "The override is set.", "force busy"),
        ("AUTO", "", "The override is over: the area goes by its count again.", "by its count"),
    ] {
        browser.click(&format!("tr:has(form[action$='/areas/{area}/override']) summary"), "Override").await;
        browser.choose("tr details[open] select[name=status]", status).await;
        if !minutes.is_empty() {
            browser.fill("tr details[open] input[name=minutes]", minutes).await;
        }
        browser.fill("tr details[open] input[name=reason]", "a concert").await;
        browser.click("tr details[open] button", "Override").await;
        browser.until_text(said).await;
        reload_rules(&t).await;
        // By the page's own refresh, or at once.
        let row = format!(
            "[...document.querySelectorAll('{ROW}')].filter((row) => row.querySelector('.lead').textContent.trim() === '{area}')
             .some((row) => row.innerText.includes('{shown}'))"
        );
        browser.until(&format!("{area} is shown as {shown}"), &row).await;
        let left = "SELECT count(*) FROM area_overrides WHERE expires_at > dispatchq_now() + interval '50 minutes'";
        assert_eq!(t.count(left).await, i64::from(status == "FORCE_BUSY"));
    }
    let audit =
        t.texts("SELECT concat_ws(' ', what, area_id, actor) FROM admission_audit WHERE what = 'override set'").await;
    assert_eq!(audit, vec![format!("override set {area} dispatcher:test-dispatcher"); 2]);
}

#[tokio::test]
async fn an_operator_stops_a_binding_and_starts_it_again() {
    let stage = ProviderStage::start().await;
    stage.run_binding("B-1", "S1", json!({})).await;
    let mut console = Console::open(&stage.t, AccountRole::Operator).await;
    console.visit("/bindings").await;
    let browser = &mut console.browser;
    for (verb, state, shown) in [("Stop", "STOPPED", "stopped, manual stop"), ("Start", "RUNNING", "running")] {
        browser.click(&format!("{ROW} summary"), verb).await;
        browser.fill("tr details[open] input[name=reason]", "maintenance").await;
        browser.click("tr details[open] button", verb).await;
        browser.until_text("The binding was told.").await;
        browser.until_text(shown).await;
        assert_eq!(stage.t.texts("SELECT state FROM bindings").await, [state]);
    }
    browser.assert_no_faults("a binding that is stopped").await;
}
