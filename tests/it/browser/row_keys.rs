//! Keys of rows: a row is selected and opened, and a letter presses a button of the row.

use jobs::queues;

use super::{
    chromium::Chromium,
    stage::{Console, let_wait},
};
use crate::support::{TestApp, dead_letters::bury_due, secs, worker_info};
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

// The state of a worker shows the age of its heartbeat, so the row changes in each refresh.
#[tokio::test]
async fn focused_button_keeps_the_focus_after_refresh() {
    let t = TestApp::start().await;
    t.send_heartbeat("00000000000000a1", "w1", Some(&worker_info(&queues::ALL))).await;
    let mut console = Console::open(&t, AccountRole::Operator).await;
    console.visit("/workers").await;
    let browser = &mut console.browser;
    browser.until_text("w1").await;
    browser.eval("document.querySelector('tr summary').focus()").await;
    t.send_heartbeat("00000000000000a2", "w0", Some(&worker_info(&queues::ALL))).await;
    browser.until_text("w0").await;
    let there = "document.activeElement.matches('tr summary')
        && document.activeElement.closest('tr').cells[0].textContent.includes('w1')";
    browser.until("the button of the same worker has the focus", there).await;
}

// Two dead jobs of one order have the same page and the same buttons.
#[tokio::test]
async fn dead_jobs_of_one_order_are_told_apart_after_refresh() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    bury_due(&t.app, "broken").await;
    t.advance(secs(1_900)).await;
    bury_due(&t.app, "broken").await;
    let mut console = Console::open(&t, AccountRole::Operator).await;
    console.visit("/dead").await;
    let browser = &mut console.browser;
    browser.until("both are listed", "document.querySelectorAll('tbody tr').length === 2").await;
    for at in ["0", "1"] {
        browser.press("j").await;
        let selected = format!("document.activeElement === document.querySelectorAll('tbody tr')[{at}]");
        browser.until("a row is selected", &selected).await;
    }
    let path = "document.activeElement.closest('tr').querySelector('form').getAttribute('action')";
    let second = browser.eval(path).await;
    t.order("ORD-2").await;
    bury_due(&t.app, "broken").await;
    browser.until_text("ORD-2").await;
    browser.until("a row is selected again", "document.activeElement.matches('tr.here')").await;
    assert_eq!(browser.eval(path).await, second, "the selected row");

    browser.eval("document.activeElement.querySelector('summary').focus()").await;
    t.order("ORD-3").await;
    bury_due(&t.app, "broken").await;
    browser.until_text("ORD-3").await;
    browser.until("a button has the focus again", "document.activeElement.matches('tr summary')").await;
    assert_eq!(browser.eval(path).await, second, "the row of the button");
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
