//! An operator drains a worker and resumes it.

use jobs::queues;
use queue::store::WorkerInfo;

use super::stage::Console;
use crate::support::{TestApp, worker_info};
use accounts::api_keys::AccountRole;

const BOOT: &str = "00000000000000a1";

#[tokio::test]
async fn operator_confirms_drain_of_last_worker_and_resumes_it() {
    let t = TestApp::start().await;
    let info = worker_info(&queues::ALL);
    t.send_heartbeat(BOOT, "w1", Some(&info)).await;
    let mut console = Console::open(&t, AccountRole::Operator).await;
    console.visit("/workers").await;
    let browser = &mut console.browser;
    browser.click("tr summary", "Drain worker").await;
    browser.until_text("No other worker takes jobs of dispatch-queue").await;
    browser.assert_accessible("the warning before a drain").await;
    browser.fill("tr details[open] input[name=reason]", "a new host").await;
    browser.click("tr details[open] button.danger", "Drain worker").await;
    let asked = "Boolean(document.querySelector('input[name=sure]:invalid:focus'))";
    browser.until("a confirmation is required", asked).await;
    assert_eq!(t.count("SELECT count(*) FROM worker_drains").await, 0);
    browser.click("tr details[open] input[name=sure]", "").await;
    browser.click("tr details[open] button.danger", "Drain worker").await;
    browser.until_text("The worker is being drained.").await;
    browser.until_text("Draining").await;
    let requested = "SELECT (extract(epoch FROM drained_at) * 1000)::bigint FROM worker_drains";
    let drain_ms = Some(t.count(requested).await.cast_unsigned());
    t.send_heartbeat(BOOT, "w1", Some(&WorkerInfo { drain_ms, ..info })).await;
    browser.until("the page follows", "document.querySelector('#live .chip').textContent.endsWith('Drained')").await;

    browser.click("tr summary", "Resume worker").await;
    browser.fill("tr details[open] input[name=reason]", "it stays").await;
    browser.click("tr details[open] button", "Resume worker").await;
    browser.until_text("The worker was resumed and takes jobs again.").await;
    browser.until_text("Drain worker").await;
    assert_eq!(t.count("SELECT count(*) FROM worker_drains").await, 0);
    browser.assert_no_faults("a worker that is drained").await;
}

// A table with long names and a drain has no cut column on laptops, and fits a phone.
#[tokio::test]
async fn workers_page_fits_laptops_and_phones() {
    let t = TestApp::start().await;
    let mut console = Console::open(&t, AccountRole::Operator).await;
    let info = WorkerInfo { host: "node-3.example.internal".to_owned(), ..worker_info(&queues::ALL) };
    t.send_heartbeat(BOOT, "node-3.example.internal-14441-b7d9fde40f3bdf6a", Some(&info)).await;
    let reason = "the host is being replaced by a larger one";
    t.sql(&format!(
        "INSERT INTO worker_drains (boot, replica, drained_by, reason) VALUES ('{BOOT}', 'w', 'operator:anna', '{reason}')"
    ))
    .await;
    t.send_heartbeat("00000000000000a2", "worker-2", Some(&info)).await;
    console.visit("/workers").await;
    let browser = &mut console.browser;
    browser.until_text(reason).await;
    browser.assert_accessible("workers").await;
    let faults = browser.find_view_faults("workers").await;
    assert!(faults.is_empty(), "{faults:#?}");
    browser.resize(390, 844, true).await;
    browser.assert_fits("workers", 390).await;
    browser.assert_accessible("workers on a phone").await;
}
