//! Saved filters of the list of orders.

use super::{Browser, place};
use accounts::api_keys::AccountRole;
use test_support::{Api, TestApp};

const SAVE: &str = "/console/orders/filters/save";
const DELETE: &str = "/console/orders/filters/delete";

#[tokio::test]
async fn saved_filter_is_listed_replaced_and_deleted() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let support = Browser::signed_in(&t, &api, AccountRole::Support).await;
    assert!(!support.text("/console/orders").await.contains("filters/save"), "there is no filter to save");
    let saved = support.post(SAVE, &[("name", "Mine <b>"), ("status", "PENDING"), ("customer", " CUS-1 ")]).await;
    let list = "/console/orders?status=PENDING&customer=CUS-1";
    assert_eq!((saved.status().as_u16(), place(&saved)), (303, format!("{list}&did=filter-saved").as_str()));
    let page = support.text(list).await;
    let link = "href=\"/console/orders?status=PENDING&#38;customer=CUS-1\" aria-current=\"true\">Mine &#60;b&#62;</a>";
    assert!(page.contains(link), "{page}");
    support.post(SAVE, &[("name", "Mine <b>"), ("held", "true")]).await;
    let stored = "SELECT concat_ws(' ', person, name, slot, filter) FROM saved_filters";
    assert_eq!(t.texts(stored).await, ["test-support Mine <b> 1 {\"held\": \"true\"}"]);
    let deleted = support.post(DELETE, &[("filter", "Mine <b>")]).await;
    assert_eq!(place(&deleted), "/console/orders?did=filter-deleted");
    assert_eq!(support.post(DELETE, &[("filter", "Mine <b>")]).await.status(), 303, "sent again");
    assert_eq!(t.count("SELECT count(*) FROM saved_filters").await, 0);
}

#[tokio::test]
async fn filters_of_one_person_are_hidden_from_others() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let support = Browser::signed_in(&t, &api, AccountRole::Support).await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    support.post(SAVE, &[("name", "secret"), ("status", "PENDING")]).await;
    dispatcher.post(DELETE, &[("filter", "secret")]).await;
    assert!(!dispatcher.text("/console/orders").await.contains("secret"));
    assert!(support.text("/console/orders").await.contains("secret"));
    assert!(!viewer.text("/console/orders?status=PENDING").await.contains("filters/save"), "a viewer only reads");
}

#[tokio::test]
async fn person_saves_at_most_twenty_filters() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let support = Browser::signed_in(&t, &api, AccountRole::Support).await;
    for n in 0..20 {
        let saved = support.post(SAVE, &[("name", &format!("filter {n}")), ("status", "PENDING")]).await;
        assert_eq!(saved.status(), 303, "{n}");
    }
    let refused = support.post(SAVE, &[("name", "one more"), ("status", "PENDING")]).await;
    assert_eq!(refused.status(), 409);
    assert!(refused.text().await.unwrap().contains("You have 20 saved filters."));
    assert_eq!(support.post(SAVE, &[("name", "filter 7"), ("held", "true")]).await.status(), 303, "an old name");
    support.post(DELETE, &[("filter", "filter 3")]).await;
    assert_eq!(support.post(SAVE, &[("name", "one more"), ("status", "PENDING")]).await.status(), 303);
    assert_eq!(t.count("SELECT count(*) FROM saved_filters").await, 20);
}

#[tokio::test]
async fn bad_filters_are_not_saved() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let support = Browser::signed_in(&t, &api, AccountRole::Support).await;
    let long = "x".repeat(61);
    for form in [
        [("name", ""), ("status", "PENDING")],
        [("name", &long), ("status", "PENDING")],
        [("name", "x"), ("status", "NONE")],
        [("name", "x"), ("from", "yesterday")],
        [("name", "x"), ("status", " ")],
    ] {
        assert_eq!(support.post(SAVE, &form).await.status(), 422, "{form:?}");
    }
    assert_eq!(t.count("SELECT count(*) FROM saved_filters").await, 0);
}
