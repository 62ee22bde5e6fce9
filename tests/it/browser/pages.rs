//! Checks of every page: no policy refusal, accessible, fits a phone, and dark in dark mode.

use super::{
    chromium::Chromium,
    stage::{Console, lay_out},
};
use crate::support::TestApp;
use accounts::api_keys::AccountRole;

/// Paths below the console's path, for an admin.
pub(super) const PAGES: [&str; 29] = [
    "",
    "/desk",
    "/alerts?show=all",
    "/orders",
    "/orders?status=COMPLETED&held=false",
    "/scheduled",
    "/refunds",
    "/areas",
    "/charts",
    "/charts?of=dispatch-queue&span=7d",
    "/map",
    "/map?at=-6.2,106.8&km=40",
    "/search?q=nothing",
    "/drivers",
    "/partners",
    "/bindings",
    "/plans",
    "/queues",
    "/jobs",
    "/workers",
    "/dead",
    "/outbox",
    "/audit",
    "/proof",
    "/sessions",
    "/keys?show=all",
    "/users",
    "/webhooks",
    "/new-order",
];
/// Pages of the orders, area, drivers, bindings and plan of [`lay_out`].
pub(super) const SUBJECT_PAGES: [&str; 16] = [
    "/search?q=D1",
    "/orders?service_type=RIDE",
    "/desk?order=HELD",
    "/orders/WAITS",
    "/orders/WAITS/contents",
    "/orders/HELD",
    "/orders/ASKS",
    "/orders/RIDES",
    "/orders/OWED",
    "/orders/BEGUN",
    "/areas/JKT-PUSAT?hours=2&threshold=3",
    "/drivers/D1",
    "/drivers/D3",
    "/bindings/B-RUNS",
    "/bindings/B-ASKS",
    "/plans/01937c3e-8f00-7000-8000-0000000000aa",
];
const PHONE: u32 = 390;
/// Window widths of laptops.
const DESKS: [u32; 2] = [1280, 1440];

/// Checks a page on a laptop in light and dark mode, and on a phone.
async fn assert_good(console: &mut Console, path: &str) {
    console.visit(path).await;
    assert_eq!(console.browser.status, 200, "{path}");
    let browser = &mut console.browser;
    browser.assert_no_faults(path).await;
    assert!(browser.background().await > 200, "{path} is light");
    browser.assert_accessible(path).await;
    browser.set_dark(true).await;
    assert!(browser.background().await < 60, "{path} is dark");
    browser.assert_accessible(&format!("{path} in the dark")).await;
    browser.set_dark(false).await;
    browser.resize(PHONE, 844, true).await;
    browser.assert_fits(path, PHONE).await;
    browser.assert_accessible(&format!("{path} on a phone")).await;
    browser.assert_fits(&format!("{path}, unfolded,"), PHONE).await;
    for width in DESKS {
        browser.resize(width, 800, false).await;
        browser.assert_shows_all_columns(path, width).await;
    }
    browser.resize(1280, 800, false).await;
}

// Rule U5: No column of a table is cut at 1280, 1440 or 390 px, also with all forms open and with long ids.
#[tokio::test]
async fn every_page_with_something_on_it() {
    let stage = lay_out().await;
    let mut console = Console::open(&stage.t, AccountRole::Admin).await;
    for path in PAGES.into_iter().chain(SUBJECT_PAGES) {
        assert_good(&mut console, path).await;
    }

    // The page shows a notice about the completed action.
    assert_good(&mut console, "/desk?did=hold").await;
    let problems = [("/nonsense", 404), ("/orders/ORD-9", 404), ("/drivers/D9", 404), ("/orders?status=NONE", 422)];
    for (path, status) in problems {
        console.visit(path).await;
        assert_eq!(console.browser.status, status, "{path}");
        console.browser.assert_accessible(path).await;
        // The browser also reports the 404 of the page itself as an error.
        let faults = console.browser.take_faults();
        assert!(faults.iter().all(|fault| fault.starts_with("network: ")), "{path}: {faults:?}");
    }
}

#[tokio::test]
async fn every_page_with_nothing_on_it() {
    let t = TestApp::start().await;
    let mut console = Console::open(&t, AccountRole::Admin).await;
    for path in PAGES {
        assert_good(&mut console, path).await;
    }
}

#[tokio::test]
async fn every_page_in_indonesian() {
    let stage = lay_out().await;
    let mut console = Console::open(&stage.t, AccountRole::Admin).await;
    console.visit("/desk").await;
    console.browser.click(".who button", "Bahasa Indonesia").await;
    let switched = "location.pathname === '/console/desk' && document.documentElement.lang === 'id'
        && document.getElementById('live-state').textContent === 'Langsung'";
    console.browser.until("the desk is in Indonesian, and its script, too", switched).await;
    for path in PAGES.into_iter().chain(SUBJECT_PAGES) {
        console.visit(path).await;
        let browser = &mut console.browser;
        browser.assert_no_faults(path).await;
        browser.assert_accessible(&format!("{path} in Indonesian")).await;
        browser.resize(PHONE, 844, true).await;
        browser.assert_fits(&format!("{path} in Indonesian"), PHONE).await;
        browser.resize(1280, 800, false).await;
    }
    console.browser.click(".who button", "English").await;
    console.browser.until("the page is in English", "document.documentElement.lang === 'en'").await;
}

#[tokio::test]
async fn a_phone_has_a_menu() {
    let t = TestApp::start().await;
    let mut console = Console::open(&t, AccountRole::Viewer).await;
    let browser: &mut Chromium = &mut console.browser;
    browser.resize(PHONE, 844, true).await;
    assert!(!browser.shows(".menu a").await);
    browser.click("#menu-toggle", "Menu").await;
    browser.assert_accessible("the menu of a phone").await;
    browser.assert_fits("the menu of a phone", PHONE).await;
    browser.click(".menu a", "Refunds").await;
    browser.until_path("/console/refunds").await;
}
