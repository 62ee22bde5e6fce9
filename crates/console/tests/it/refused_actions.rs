//! Refused actions: the page of the form is shown again, with the reason and the values.

use super::{ACTIONS, Browser, lay_out, place};
use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp};

/// Sends a form of this page as a browser does.
async fn send_from(browser: &Browser, page: &str, path: &str, form: &[(&str, &str)]) -> (u16, String) {
    let referer = format!("{}{page}", browser.base);
    let headers = [("sec-fetch-site", "same-origin"), ("referer", referer.as_str())];
    let answer = browser.post_with(path, form, &headers).await;
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// Asserts that the page has its menu and that the refusal has the focus.
fn assert_shown(page: &str, what: &str) {
    assert!(page.contains("<nav class=\"menu"), "{what} has no menu: {page}");
    assert!(page.contains("id=\"refused\" role=\"alert\" tabindex=\"-1\" autofocus"), "{what}: {page}");
    assert_eq!(page.matches("id=\"refused\"").count(), 1, "{what}");
}

// Rule U1: A refused action shows its page again, with the reason at the form, the values kept, and advice that names a
// button.
#[tokio::test]
async fn refused_action_keeps_its_page_and_its_values() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    lay_out(&t).await;
    t.run_due().await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    let held = dispatcher.post("/console/orders/ORD-1/hold", &[("reason", "a test")]).await;
    assert_eq!(held.status(), 303);
    let assign = "/console/orders/ORD-1/assign";
    let form = [("back", "/desk"), ("driver_id", "D9"), ("reason", "asked by phone")];
    let (status, page) = send_from(&dispatcher, "/console/desk?did=hold", assign, &form).await;
    assert_eq!(status, 409);
    assert_shown(&page, "the desk");
    assert!(page.contains("<h1>Desk</h1>") && page.contains("data-page=\"/console/desk\""), "{page}");
    assert!(page.contains("value=\"D9\"") && page.contains("value=\"asked by phone\""), "{page}");
    assert!(page.contains("add the driver on the page Drivers") && !page.contains("dispatchq driver"), "{page}");
    assert!(!page.contains("The order is under review"), "the action before is not repeated");
    let form_of = page.split("<details class=\"act\" open>").nth(1).unwrap();
    assert!(form_of.starts_with("<summary>Decide</summary>"), "the form is open: {page}");

    // The order page has its own form. Without a Referer the form's address identifies the page.
    let (_, page) = send_from(&dispatcher, "/elsewhere", assign, &form).await;
    assert_shown(&page, "the order");
    assert!(page.contains("Order <span class=\"id\">ORD-1</span>") && page.contains("value=\"D9\""), "{page}");

    // If the page no longer has the form, the top of the page shows the values.
    let (status, page) =
        send_from(&dispatcher, "/console/orders/OWED", "/console/orders/OWED/hold", &[("reason", "they call back")])
            .await;
    assert_eq!(status, 409);
    assert_shown(&page, "a closed order");
    assert!(page.contains("Your input:") && page.contains("<dd>they call back</dd>"), "{page}");
    assert!(page.contains("so this action is not possible"), "{page}");

    // If several forms have the same address, the form of the row that sent it is opened.
    let near = [("back", "/desk"), ("driver_id", "D1"), ("list", "near"), ("reason", "")];
    let (status, page) = send_from(&dispatcher, "/console/desk?order=ORD-1", assign, &near).await;
    assert_eq!(status, 422);
    assert!(page.contains("<details class=\"act\" open><summary>Assign D1</summary>"), "{page}");

    let indonesian = Browser { cookie: format!("{}; dispatchq_language=id", dispatcher.cookie), ..Browser::new(&api) };
    let (_, page) = send_from(&indonesian, "/console/desk", assign, &form).await;
    assert!(page.contains("tambahkan pengemudi") && page.contains("<html lang=\"id\""), "{page}");
}

// Rule U1: Every refused action shows a page with its menu. A filter that cannot be read keeps the values that were
// entered.
#[tokio::test]
async fn every_refused_request_keeps_a_page() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    lay_out(&t).await;
    let admin = Browser::signed_in(&t, &api, AccountRole::Admin).await;
    let long = "x".repeat(501);
    for (path, form) in ACTIONS {
        let wrong: Vec<(&str, &str)> = form
            .iter()
            .map(
                |(name, value)| {
                    if matches!(*name, "reason" | "note") { (*name, long.as_str()) } else { (*name, *value) }
                },
            )
            .collect();
        let answer = admin.post(path, &wrong).await;
        let status = answer.status().as_u16();
        if status == 303 || path.ends_with("/phone") {
            continue;
        }
        assert!([404, 409, 422].contains(&status), "{path}: {status}");
        assert_shown(&answer.text().await.unwrap(), path);
    }
    for (path, kept) in [
        ("/console/orders?status=NONE&q=CUS-1", "value=\"CUS-1\""),
        ("/console/audit?who=anna&from=yesterday", "value=\"anna\""),
        ("/console/bindings?state=NONE&server=S1", "value=\"S1\""),
    ] {
        let answer = admin.get(path).await;
        assert_eq!(answer.status(), 422, "{path}");
        let page = answer.text().await.unwrap();
        assert_shown(&page, path);
        assert!(page.contains(kept), "{path}: {page}");
    }

    // A person whose session has expired returns to the page of the form after signing in.
    let stranger = Browser::new(&api);
    let desk = api.url("/console/desk");
    let headers = [("sec-fetch-site", "same-origin"), ("referer", desk.as_str())];
    let answer = stranger.post_with("/console/orders/ORD-1/hold", &[("reason", "a test")], &headers).await;
    assert_eq!(place(&answer), "/console/login?next=%2Fconsole%2Fdesk");
}
