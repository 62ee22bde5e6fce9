//! Checks of every page, empty and with data: no policy refusal, accessible, well laid out, and dark in dark mode.

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
pub(super) const SUBJECT_PAGES: [&str; 20] = [
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
    "/jobs?queue=lifetime-cancel-queue",
    "/outbox/1",
    "/proof/1",
    "/webhooks/01937c3e-8f00-7000-8000-0000000000bb",
];
/// Source of the console's routes. The handlers of pages start with `show_`.
const ROUTES: &str = include_str!("../../../crates/console/src/pages/mod.rs");
const PHONE: u32 = 390;

/// Checks a page with axe on a laptop, in light and dark mode, and on a phone. Returns the faults of its views.
async fn check_page(console: &mut Console, path: &str) -> Vec<String> {
    console.visit(path).await;
    assert_eq!(console.browser.status, 200, "{path}");
    let browser = &mut console.browser;
    browser.assert_no_faults(path).await;
    let faults = browser.find_view_faults(path).await;
    assert!(browser.background().await > 200, "{path} is light");
    browser.assert_accessible(path).await;
    browser.set_dark(true).await;
    assert!(browser.background().await < 60, "{path} is dark");
    browser.assert_accessible(&format!("{path} in the dark")).await;
    browser.set_dark(false).await;
    browser.resize(PHONE, 844, true).await;
    browser.assert_accessible(&format!("{path} on a phone")).await;
    browser.resize(1280, 800, false).await;
    faults
}

/// Returns whether an address without its query is of a route, such as `/orders/{id}`.
fn is_of_route(path: &str, route: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let (parts, wanted): (Vec<_>, Vec<_>) = (path.split('/').collect(), route.split('/').collect());
    parts.len() == wanted.len()
        && parts.iter().zip(wanted).all(|(part, wanted)| wanted.starts_with('{') || *part == wanted)
}

#[test]
fn lists_of_pages_contain_every_route() {
    let is_page = |line: &&str| {
        line.split("get(")
            .nth(1)
            .and_then(|rest| rest.split(')').next())
            .is_some_and(|handler| handler.contains("::show_"))
    };
    let pages = ROUTES.lines().filter(is_page);
    let routes: Vec<&str> =
        pages.filter_map(|line| line.split('"').nth(1)).filter(|route| *route != "/login").collect();
    assert!(routes.len() > 30, "{routes:?}");
    let missing =
        routes.into_iter().filter(|route| !PAGES.iter().chain(&SUBJECT_PAGES).any(|path| is_of_route(path, route)));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new());
}

// Rule U5: No column of a table is cut at 1280, 1440 or 390 px, also with all forms open and with long ids.
#[tokio::test]
async fn every_page_with_something_on_it() {
    let stage = lay_out().await;
    let mut console = Console::open(&stage.t, AccountRole::Admin).await;
    let mut faults = Vec::new();
    for path in PAGES.into_iter().chain(SUBJECT_PAGES) {
        faults.extend(check_page(&mut console, path).await);
    }

    // The page shows a notice about the completed action.
    faults.extend(check_page(&mut console, "/desk?did=hold").await);
    let problems = [("/nonsense", 404), ("/orders/ORD-9", 404), ("/drivers/D9", 404), ("/orders?status=NONE", 422)];
    for (path, status) in problems {
        console.visit(path).await;
        assert_eq!(console.browser.status, status, "{path}");
        console.browser.assert_accessible(path).await;
        faults.extend(console.browser.find_view_faults(path).await);
        console.browser.assert_no_other_faults(path).await;
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[tokio::test]
async fn every_page_with_nothing_on_it() {
    let t = TestApp::start().await;
    let mut console = Console::open(&t, AccountRole::Admin).await;
    let mut faults = Vec::new();
    for path in PAGES {
        faults.extend(check_page(&mut console, path).await);
        let unexplained = "[...document.querySelectorAll('.empty')].filter((part) =>
            part.innerText.replace(part.querySelector('strong').innerText, '').trim().length < 20).map((part) => part.innerText)";
        assert_eq!(
            console.browser.eval(unexplained).await,
            serde_json::json!([]),
            "{path} does not explain why it is empty"
        );
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
