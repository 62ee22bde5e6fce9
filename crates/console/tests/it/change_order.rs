//! The form that changes the contents of an order.

use reqwest::Method;
use serde_json::json;

use super::{Browser, place};
use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp, ride_with_id};

const PAGE: &str = "/console/orders/ORD-1/contents";
const CHANGE: &str = "/console/orders/ORD-1/contents/change";

/// Creates ORD-1 with contents.
async fn lay_out(t: &TestApp, api: &Api) {
    let mut ride = ride_with_id("ORD-1");
    ride["notes"] = json!("Two suitcases.");
    ride["requires"] = json!(["van"]);
    ride["pickup"]["address"] = json!("Jalan Thamrin 9");
    ride["contact"] = json!({ "name": "CONTACT-TEXT", "phone": "+628123456789" });
    ride["metadata"] = json!({ "crm_id": "7", "old": "x" });
    let created = api.post("/api/v1/orders", &t.key(AccountRole::Producer).await, ride).await;
    assert_eq!(created.status, 201, "{created:?}");
}

/// Returns the names and values of the form on a page, as a browser sends them.
fn read_form(page: &str) -> Vec<(String, String)> {
    let part = |text: &str, before: &str, after: &str| {
        text.split(before).nth(1).and_then(|rest| rest.split(after).next()).unwrap_or_default().to_owned()
    };
    let form = page.split("<form class=\"panel long\"").nth(1).unwrap().split("</form>").next().unwrap();
    let inputs = form.split("<input").skip(1).map(|input| {
        let tag = input.split('>').next().unwrap();
        (part(tag, "name=\"", "\""), part(tag, "value=\"", "\""))
    });
    inputs.chain([("notes".to_owned(), part(form, "rows=\"3\">", "</textarea>"))]).collect()
}

/// Sends the form with other values for some fields.
async fn send(browser: &Browser, form: &[(String, String)], changes: &[(&str, &str)]) -> (u16, String) {
    let value = |name: &str, own: &str| {
        changes.iter().find(|(changed, _)| *changed == name).map_or(own.to_owned(), |(_, value)| (*value).to_owned())
    };
    let form: Vec<(String, String)> = form.iter().map(|(name, own)| (name.clone(), value(name, own))).collect();
    let form: Vec<(&str, &str)> = form.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let answer = browser.post(CHANGE, &form).await;
    let status = answer.status().as_u16();
    if status == 303 { (status, place(&answer).to_owned()) } else { (status, answer.text().await.unwrap()) }
}

#[tokio::test]
async fn saved_form_changes_contents_and_keeps_the_contact() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    lay_out(&t, &api).await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    assert!(dispatcher.text("/console/orders/ORD-1").await.contains(&format!("href=\"{PAGE}\"")));
    let page = dispatcher.text(PAGE).await;
    assert!(page.contains("value=\"Jalan Thamrin 9\"") && !page.contains("CONTACT-TEXT"), "{page}");
    let form = read_form(&page);
    let unchanged = send(&dispatcher, &form, &[]).await;
    assert_eq!(unchanged, (303, "/console/orders/ORD-1?did=order-unchanged".to_owned()));

    let (status, page) = send(&dispatcher, &form, &[("contact_phone", "0812"), ("notes", "Ring twice.")]).await;
    assert!(status == 422 && page.contains("id=\"wrong-contact_phone\"") && page.contains("Ring twice."), "{page}");
    let changes = [
        ("notes", "Ring twice."),
        ("dropoff", "-6.1754, 106.8272"),
        ("requires", "lift"),
        ("contact_email", "ana@example.com"),
    ];
    let saved = send(&dispatcher, &form, &changes).await;
    assert_eq!(saved, (303, "/console/orders/ORD-1?did=order-changed".to_owned()));
    let page = dispatcher.text("/console/orders/ORD-1?did=order-changed").await;
    assert!(page.contains("The contents of the order were changed.") && page.contains("Ring twice."), "{page}");
    let contact = "SELECT concat_ws(' ', contact->>'name', contact->>'phone', contact->>'email') FROM order_details";
    assert_eq!(t.texts(contact).await, ["CONTACT-TEXT +628123456789 ana@example.com"]);
    let event = "SELECT concat_ws(' ', actor, detail) FROM order_events WHERE reason = 'CONTENTS_CHANGED'";
    assert_eq!(t.texts(event).await, ["dispatcher:test-dispatcher dropoff, notes, contact, requires"]);
    assert_eq!(t.count("SELECT count(*) FROM staff_actions").await, 0, "no contact was viewed");

    let form = read_form(&dispatcher.text(PAGE).await);
    let dashes = [("contact_name", "-"), ("contact_phone", "-"), ("contact_email", "-"), ("metadata_key", "")];
    let without: Vec<_> = form.into_iter().filter(|(name, _)| !name.starts_with("metadata")).collect();
    assert_eq!(send(&dispatcher, &without, &dashes).await.0, 303);
    assert_eq!(
        t.texts("SELECT coalesce(contact::text, 'none') || metadata::text FROM order_details").await,
        ["none{}"]
    );
    t.assert_sound().await;
}

// Rule U1: A conflict shows who changed what, the stored values, and the values of the person.
#[tokio::test]
async fn form_of_an_old_version_shows_stored_values() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    lay_out(&t, &api).await;
    let support = Browser::signed_in(&t, &api, AccountRole::Support).await;
    let form = read_form(&support.text(PAGE).await);
    let patch = json!({ "notes": "Blue gate.", "metadata": { "crm_id": "8" } });
    let key = t.key(AccountRole::Dispatcher).await;
    let patched = api.send(Method::PATCH, "/api/v1/orders/ORD-1", &key, "", patch.to_string()).await;
    assert_eq!(patched.status, 200, "{patched:?}");
    let (status, page) = send(&support, &form, &[("notes", "Ring twice.")]).await;
    assert_eq!(status, 409);
    for text in [
        "dispatcher:test-dispatcher changed notes, metadata at",
        "Stored value: Blue gate.",
        "Stored value: crm_id = 8, old = x",
        "Ring twice.",
        "id=\"refused\" role=\"alert\"",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("Stored value: Jalan Thamrin 9"), "equal values are not repeated: {page}");
    assert_eq!(t.texts("SELECT notes FROM order_details").await, ["Blue gate."]);
    // The form has the new version now, so the person can save it.
    assert_eq!(send(&support, &read_form(&page), &[]).await.0, 303);
    assert_eq!(t.texts("SELECT notes || (metadata->>'crm_id') FROM order_details").await, ["Ring twice.7"]);
}

#[tokio::test]
async fn saved_form_moves_the_pickup_of_a_scheduled_order() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    // It is 08:00 UTC.
    let (first, second) = ("2030-01-01T10:00:00Z", "2030-01-01T12:00:00Z");
    t.order_at("ORD-1", first.parse().unwrap()).await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    let form = read_form(&dispatcher.text(PAGE).await);
    assert!(form.contains(&("pickup_at".to_owned(), first.to_owned())), "{form:?}");
    let unchanged = send(&dispatcher, &form, &[]).await;
    assert_eq!(unchanged, (303, "/console/orders/ORD-1?did=order-unchanged".to_owned()));
    for refused in ["12:00", "2020-01-01T12:00:00Z"] {
        let (status, page) = send(&dispatcher, &form, &[("pickup_at", refused), ("notes", "Ring twice.")]).await;
        assert!(status == 422 && page.contains("id=\"wrong-pickup_at\"") && page.contains("Ring twice."), "{page}");
    }
    let saved = send(&dispatcher, &form, &[("pickup_at", second), ("notes", "Ring twice.")]).await;
    assert_eq!(saved.0, 303, "{}", saved.1.split("id=\"refused\"").nth(1).unwrap_or_default());
    let moved =
        "SELECT concat_ws(' ', pickup_at AT TIME ZONE 'UTC', notes) FROM orders JOIN order_details ON order_id = id";
    assert_eq!(t.texts(moved).await, ["2030-01-01 12:00:00 Ring twice."]);
    t.assert_sound().await;
}

#[tokio::test]
async fn contents_are_fixed_after_pickup_and_for_other_roles() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    lay_out(&t, &api).await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    let form = read_form(&dispatcher.text(PAGE).await);
    for role in [AccountRole::Viewer, AccountRole::Operator] {
        let browser = Browser::signed_in(&t, &api, role).await;
        assert!(!browser.text("/console/orders/ORD-1").await.contains("/contents"), "{role:?}");
        assert_eq!(browser.get(PAGE).await.status(), 403, "{role:?}");
        assert_eq!(send(&browser, &form, &[("notes", "mine")]).await.0, 403, "{role:?}");
    }
    for path in [CHANGE, "/console/orders/ORD-1/contents/rows"] {
        assert_eq!(place(&dispatcher.get(path).await), PAGE, "{path}");
    }
    assert_eq!(dispatcher.get("/console/orders/ORD-9/contents").await.status(), 404);
    t.drivers(&[("D1", 100.0)]).await;
    t.sql("UPDATE drivers SET skills = '{van,wheelchair}'").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    let driver = "D1".into();
    t.act("ORD-1", |s| model::decide::actions::record_pickup(s, &driver)).await.unwrap();
    let (status, page) = send(&dispatcher, &form, &[("notes", "too late")]).await;
    assert!(status == 409 && page.contains("too late"), "{page}");
    assert!(!dispatcher.text("/console/orders/ORD-1").await.contains("/contents"));
    assert_eq!(dispatcher.get(PAGE).await.status(), 409);
    assert_eq!(t.texts("SELECT notes FROM order_details").await, ["Two suitcases."]);
}
