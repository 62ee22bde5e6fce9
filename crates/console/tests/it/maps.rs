//! Maps of areas and orders, drawn from rows in Postgres.

use model::admission::limits::ForcedStatus;

use super::{Browser, statements_of};
use accounts::api_keys::AccountRole;
use areas::{
    import,
    table::{ChangeAuthor, geofences, overrides},
};
use test_support::{Api, JAKARTA, TestApp, by, secs};

#[tokio::test]
async fn areas_are_drawn_with_how_full_they_are() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    assert!(!viewer.text("/console/areas").await.contains("<svg class=\"map\""), "there is no area yet");
    let person = by("dispatcher:anna");
    let author = ChangeAuthor { actor: &person, reason: Some("a test") };
    geofences::import_areas(&t.app.core.db, &import::parse(JAKARTA).unwrap(), false, None, author).await.unwrap();
    overrides::set_override(&t.app.core.db, &"JKT-PUSAT".into(), Some((ForcedStatus::ForceBusy, None)), None, author)
        .await
        .unwrap();
    t.app.areas.reload_if_changed().await.unwrap();
    let page = viewer.text("/console/areas").await;
    for text in [
        "<svg class=\"map\"",
        "<g class=\"area closed\">",
        "<g class=\"area calm\">",
        ">JKT-PUSAT<tspan ",
        ">0%</tspan></text>",
        "Closed by staff",
        "Forced busy",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(page.len() < 400_000, "{} bytes", page.len());
}

#[tokio::test]
async fn an_order_is_drawn_with_the_drivers_who_were_asked() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    t.order("ORD-1").await;
    let page = viewer.text("/console/orders/ORD-1").await;
    assert!(page.contains(">Pickup</text>") && page.contains("Map of the pickup and 0 drivers"), "{page}");
    t.drivers(&[("D1", 1_500.0)]).await;
    t.run_due().await;
    assert!(viewer.text("/console/orders/ORD-1").await.contains(">D1 has an offer, 1.5 km</text>"));
    t.accept_offer("ORD-1").await;
    assert!(viewer.text("/console/orders/ORD-1").await.contains(">D1 has the order, 1.5 km</text>"));
}

#[tokio::test]
async fn map_shows_drivers_on_duty_and_orders() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    assert!(viewer.text("/console/map").await.contains("No drivers on duty and no orders"));
    t.drivers(&[("D1", 1_500.0), ("D2", 3_000.0), ("D3", 4_000.0)]).await;
    t.sql("UPDATE drivers SET available = false WHERE id = 'D3'; UPDATE drivers SET phone = '+628123456789'").await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    t.order_of("ORD-2", "RENT", "PAID").await;
    let (page, statements) = statements_of(&viewer, "/console/map").await;
    assert_eq!(statements.len(), 3, "the session, the drivers and the orders: {statements:#?}");
    for text in [
        "Drivers without an order: <b>1</b>",
        "Drivers with an order: <b>1</b>",
        "Waiting orders: <b>1</b>",
        "Running orders: <b>1</b>",
        "aria-label=\"Driver D1 with order ORD-1, ",
        "aria-label=\"Order ORD-2: Searching for a driver, pickup ",
        "<path class=\"trip\"",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("D3") && !page.contains("+62"), "an idle driver, or a number: {page}");
}

#[tokio::test]
async fn map_shows_only_the_chosen_part() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    t.drivers(&[("NEAR", 0.0), ("FAR", 30_000.0)]).await;
    let place = t.texts("SELECT concat_ws(',', lat, lng) FROM drivers WHERE id = 'NEAR'").await.remove(0);
    let page = viewer.text(&format!("/console/map?at={place}&km=20")).await;
    assert!(page.contains(">NEAR</text>") && !page.contains("FAR"), "{page}");
    assert!(page.contains("href=\"/console/map?at=") && page.contains("km=10.000"), "{page}");
    for query in ["at=0,0", "km=5", "at=91,0&km=5", "at=0,0&km=-1", "at=x&km=NaN"] {
        let refused = viewer.get(&format!("/console/map?{query}")).await;
        assert_eq!(refused.status(), 422, "{query}");
        assert!(refused.text().await.unwrap().contains("The map needs a centre"), "{query}");
    }
}

#[tokio::test]
async fn each_attempt_is_shown_with_who_was_looked_at() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let viewer = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    t.drivers(&[("D1", 100.0), ("D2", 400.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let page = viewer.text("/console/orders/ORD-1").await;
    assert!(page.contains("Drivers considered for attempt 1,") && !page.contains("<summary>Attempt "), "{page}");
    t.decline_offer("ORD-1").await;
    t.run_for(secs(30)).await;
    let page = viewer.text("/console/orders/ORD-1").await;
    assert!(page.contains("Drivers considered for attempt 2,") && page.contains("<summary>Attempt 1, "), "{page}");
    assert!(page.contains("Declined this order"), "why D1 was not asked again: {page}");
}
