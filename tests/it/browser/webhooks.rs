//! An admin creates a webhook endpoint and copies its secret.

use serde_json::json;

use super::stage::Console;
use crate::support::TestApp;
use accounts::api_keys::AccountRole;

const PHONE: u32 = 390;

#[tokio::test]
async fn secret_of_a_new_endpoint_is_copied() {
    let t = TestApp::start().await;
    let mut console = Console::open(&t, AccountRole::Admin).await;
    console.visit("/webhooks").await;
    let browser = &mut console.browser;
    browser
        .call("Browser.grantPermissions", json!({ "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"] }))
        .await;
    browser.click("summary", "Create endpoint").await;
    browser.fill("details[open] input[name=url]", "https://shop.example.com/dispatchq").await;
    browser.fill("details[open] input[name=producer]", "shop").await;
    browser.fill("details[open] input[name=reason]", "the shop is online").await;
    browser.click("details[open] button", "Create endpoint").await;
    browser.until_text("The secret is shown only once.").await;
    browser.assert_no_faults("a new secret").await;
    browser.assert_accessible("a new secret").await;
    browser.set_dark(true).await;
    browser.assert_accessible("a new secret in the dark").await;
    browser.set_dark(false).await;
    browser.click("button", "Copy").await;
    browser.until_text("Copied").await;
    let secret = browser.eval("document.getElementById('secret').textContent").await;
    assert_eq!(t.texts("SELECT secret FROM webhook_endpoints").await, [secret.as_str().unwrap()]);
    assert_eq!(browser.eval("navigator.clipboard.readText()").await, secret);
    browser.resize(PHONE, 844, true).await;
    browser.assert_fits("a new secret", PHONE).await;
    browser.click("a.button", "Back to webhooks").await;
    browser.until_path("/console/webhooks").await;
    browser.assert_fits("webhook endpoints", PHONE).await;
    browser.assert_accessible("webhook endpoints").await;
}
