//! An admin creates a key for a person and revokes it.

use super::stage::Console;
use crate::support::TestApp;
use accounts::api_keys::{AccountRole, is_well_formed};

const PHONE: u32 = 390;

#[tokio::test]
async fn new_key_opens_the_console_until_revoked() {
    let t = TestApp::start().await;
    let mut console = Console::open(&t, AccountRole::Admin).await;
    console.visit("/keys").await;
    let browser = &mut console.browser;
    browser.click("summary", "Create key").await;
    browser.fill("details[open] input[name=name]", "anna").await;
    browser.choose("details[open] select[name=role]", "dispatcher").await;
    browser.fill("details[open] input[name=reason]", "begins on Monday").await;
    browser.click("details[open] button", "Create key").await;
    browser.until_text("The key is shown only once.").await;
    browser.assert_no_faults("a new key").await;
    browser.assert_accessible("a new key").await;
    browser.set_dark(true).await;
    browser.assert_accessible("a new key in the dark").await;
    browser.set_dark(false).await;
    browser.resize(PHONE, 844, true).await;
    browser.assert_fits("a new key", PHONE).await;
    browser.resize(1280, 800, false).await;
    let key = browser.eval("document.getElementById('new-key').textContent").await;
    let key = key.as_str().unwrap().to_owned();
    assert!(is_well_formed(&key), "{key}");
    let kept = "JSON.stringify([document.cookie, location.href, { ...localStorage }, { ...sessionStorage }])";
    assert!(!browser.eval(kept).await.as_str().unwrap().contains(&key), "the browser keeps the key");

    // A test may not use the clipboard of the machine.
    browser.eval("navigator.clipboard.writeText = async (text) => { window.copied = text; }").await;
    browser.click("button", "Copy").await;
    browser.until_text("Copied").await;
    assert_eq!(browser.eval("window.copied").await, key);

    browser.click("a.button", "Back to keys").await;
    browser.until_path("/console/keys").await;
    assert!(!browser.eval("document.documentElement.outerHTML").await.as_str().unwrap().contains(&key));
    let origin = console.api.url("");
    let browser = &mut console.browser;
    browser.sign_out().await;
    browser.sign_in(&origin, "/console/desk", &key).await;
    browser.until_text("anna").await;

    let admin = t.key_named("root", AccountRole::Admin, None).await;
    browser.sign_out().await;
    browser.sign_in(&origin, "/console/keys", &admin).await;
    browser.click("tr:has(form[action*='/keys/']) summary", "Revoke key").await;
    let name = browser.eval("document.querySelector('tr:has(details[open]) .lead').textContent.trim()").await;
    browser.fill("tr details[open] input[name=reason]", "a laptop was lost").await;
    browser.click("tr details[open] button", "Revoke key").await;
    browser
        .until("a confirmation is required", "Boolean(document.querySelector('input[name=sure]:invalid:focus'))")
        .await;
    browser.click("tr details[open] input[name=sure]", "").await;
    browser.click("tr details[open] button", "Revoke key").await;
    browser.until_text("The key was revoked").await;
    let revoked = t.texts("SELECT name FROM api_keys WHERE revoked_at IS NOT NULL").await;
    assert_eq!(revoked, [name.as_str().unwrap()], "the one of the row");
}
