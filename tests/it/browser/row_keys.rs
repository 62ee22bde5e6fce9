//! Keys of rows: a row is selected and opened, and a letter presses a button of the row.

use jobs::queues;

use super::{
    chromium::Chromium,
    stage::{Console, let_wait},
};
use crate::support::{TestApp, worker_info};
use accounts::api_keys::AccountRole;

/// Presses a key that moves the selection, and waits until the row with this text has the focus.
async fn move_to(browser: &mut Chromium, key: &str, text: &str) {
    browser.press(key).await;
    let there = format!(
        "document.activeElement.matches('tr.here') && document.activeElement.cells[0].textContent.includes('{text}')"
    );
    browser.until(&format!("{text} is selected"), &there).await;
}

#[tokio::test]
async fn rows_are_selected_and_opened_by_keys() {
    let t = TestApp::start().await;
    let_wait(&t, "WAITS-1").await;
    let_wait(&t, "WAITS-2").await;
    let mut console = Console::open(&t, AccountRole::Dispatcher).await;
    console.visit("/desk").await;
    let browser = &mut console.browser;
    browser.until_text("WAITS-2").await;
    move_to(browser, "j", "WAITS-1").await;
    move_to(browser, "ArrowDown", "WAITS-2").await;
    move_to(browser, "ArrowUp", "WAITS-1").await;
    move_to(browser, "j", "WAITS-2").await;
    browser.assert_accessible("a selected row").await;
    browser.press_enter().await;
    browser.until_path("/console/orders/WAITS-2").await;
    browser.assert_no_faults("keys of rows").await;
}

#[tokio::test]
async fn letter_presses_a_button_of_the_row() {
    let t = TestApp::start().await;
    let_wait(&t, "WAITS-1").await;
    let_wait(&t, "WAITS-2").await;
    let mut console = Console::open(&t, AccountRole::Dispatcher).await;
    console.visit("/desk").await;
    let browser = &mut console.browser;
    browser.until_text("WAITS-2").await;
    browser.press("c").await;
    move_to(browser, "j", "WAITS-1").await;
    move_to(browser, "j", "WAITS-2").await;
    let letter = "document.querySelector('tr.here form[action$=\"/take\"] button').getAttribute('aria-keyshortcuts')";
    assert_eq!(browser.eval(letter).await, "c");
    assert_eq!(browser.eval("document.querySelectorAll('tr:not(.here) [aria-keyshortcuts]').length").await, 0);
    browser.press("c").await;
    browser.until_text("You now handle this order").await;
    assert_eq!(t.texts("SELECT order_id FROM desk_takes").await, ["WAITS-2"]);
}

#[tokio::test]
async fn letter_of_dangerous_action_asks_first() {
    let t = TestApp::start().await;
    t.send_heartbeat("00000000000000a1", "w1", Some(&worker_info(&queues::ALL))).await;
    let mut console = Console::open(&t, AccountRole::Operator).await;
    console.visit("/workers").await;
    let browser = &mut console.browser;
    browser.until_text("Drain worker").await;
    move_to(browser, "j", "w1").await;
    browser.press("d").await;
    let opened = "document.activeElement.matches('tr details[open] input[name=reason]')";
    browser.until("the form is open and waits for the reason", opened).await;
    // Letters of the reason press nothing.
    for key in ["d", "j", "g", "?"] {
        browser.press(key).await;
    }
    assert_eq!(browser.eval("document.activeElement.value").await, "djg?");
    assert_eq!(browser.eval("Boolean(document.querySelector('tr details[open]'))").await, true);
    browser.press_enter().await;
    let asked = "Boolean(document.querySelector('tr details[open] input[name=sure]:invalid:focus'))";
    browser.until("a confirmation is required", asked).await;
    assert_eq!(t.count("SELECT count(*) FROM worker_drains").await, 0);
    browser.assert_no_faults("a letter of a dangerous action").await;
}

#[tokio::test]
async fn selected_row_keeps_focus_and_keys_after_refresh() {
    let t = TestApp::start().await;
    t.send_heartbeat("00000000000000a1", "w1", Some(&worker_info(&queues::ALL))).await;
    let mut console = Console::open(&t, AccountRole::Operator).await;
    console.visit("/workers").await;
    let browser = &mut console.browser;
    browser.until_text("w1").await;
    move_to(browser, "j", "w1").await;
    t.send_heartbeat("00000000000000a2", "w0", Some(&worker_info(&queues::ALL))).await;
    browser.until_text("w0").await;
    let there =
        "document.activeElement.matches('tr.here') && document.activeElement.cells[0].textContent.includes('w1')
        && document.querySelectorAll('tr.here [aria-keyshortcuts]').length === 1
        && document.querySelectorAll('[aria-keyshortcuts]').length === 1";
    browser.until("the same row is selected", there).await;
    browser.assert_no_faults("a selected row after a refresh").await;
}

#[tokio::test]
async fn rows_of_one_name_are_told_apart_after_refresh() {
    let t = TestApp::start().await;
    for boot in ["00000000000000a1", "00000000000000a2"] {
        t.send_heartbeat(boot, "w1", Some(&worker_info(&queues::ALL))).await;
    }
    let mut console = Console::open(&t, AccountRole::Operator).await;
    console.visit("/workers").await;
    let browser = &mut console.browser;
    browser.until_text("w1").await;
    move_to(browser, "j", "w1").await;
    move_to(browser, "j", "w1").await;
    let path = "document.querySelector('tr.here form').getAttribute('action')";
    let selected = browser.eval(path).await;
    assert_eq!(browser.eval("document.querySelectorAll('tbody tr')[1].classList.contains('here')").await, true);
    t.send_heartbeat("00000000000000a3", "w0", Some(&worker_info(&queues::ALL))).await;
    browser.until_text("w0").await;
    let there = "document.activeElement.matches('tr.here')";
    browser.until("a row is selected after the refresh", there).await;
    assert_eq!(browser.eval(path).await, selected);
}

#[tokio::test]
async fn help_lists_the_keys_of_rows() {
    let t = TestApp::start().await;
    let mut console = Console::open(&t, AccountRole::Viewer).await;
    let browser = &mut console.browser;
    browser.press("?").await;
    browser.until_text("Action of the selected row: the letter next to its button").await;
    browser.assert_accessible("the list of keys").await;
}
