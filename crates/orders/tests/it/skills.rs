//! Labels that orders require: only drivers with each of them are asked, whichever way finds the driver.

use std::collections::BTreeSet;

use desk::explain::gather;
use foundation::staff_actions::ActionAuthor;
use model::{
    decide::actions,
    ids::DriverId,
    order::{OfferState, OrderStatus},
};
use orders::fleet::{
    driver_admin::{self, DriverChange},
    driver_index,
    drivers::{self, DriverFix},
    waiting_orders,
};
use settings::Config;
use test_support::{TestApp, by, id, retry_as_shipped, secs};

const THREE: [(&str, f64); 3] = [("bare", 100.0), ("van", 200.0), ("lift", 300.0)];

/// Creates three drivers: one without labels, one with `van`, and one with `van` and `wheelchair`.
async fn three_drivers(t: &TestApp) {
    t.drivers(&THREE).await;
    t.sql("UPDATE drivers SET skills = '{van}' WHERE id = 'van'").await;
    t.sql("UPDATE drivers SET skills = '{van,wheelchair}' WHERE id = 'lift'").await;
}

/// Changes the labels of a driver, as an operator does.
async fn set_skills(t: &TestApp, driver: &str, labels: &[&str]) {
    let skills: BTreeSet<String> = labels.iter().map(|label| (*label).to_owned()).collect();
    let change = DriverChange { skills: Some(skills), ..DriverChange::default() };
    let author = ActionAuthor { actor: &by("operator:test"), reason: Some("a test") };
    driver_admin::change_driver(&t.app.orders, &driver.into(), &change, author).await.unwrap();
}

/// Reports the present position of a driver again.
async fn report_position(t: &TestApp, driver: &str) {
    let place = drivers::list_places(&t.app.core.db, &[driver.into()]).await.unwrap()[0].1;
    let moved = drivers::move_to(&t.app.core.db, &driver.into(), DriverFix { place, at: None }).await;
    driver_index::upsert_driver(&t.app.core, &moved.unwrap().unwrap().place).await;
}

async fn match_drivers(t: &TestApp) -> usize {
    waiting_orders::match_freed_drivers(&t.app.orders).await.unwrap()
}

async fn asked(t: &TestApp, order: &str) -> Vec<DriverId> {
    t.live_offers(order).await.into_iter().map(|offer| offer.driver_id).collect()
}

/// Returns each driver who was left out of the latest search, with the reason.
async fn left_out(t: &TestApp, order: &str) -> Vec<(String, String)> {
    let explained = gather::explain_order(&t.app.desk, &id(order)).await.unwrap().unwrap();
    let excluded = explained.ranking.expect("a search").candidates.excluded;
    excluded.into_iter().map(|driver| (driver.driver_id.to_string(), driver.describe())).collect()
}

#[track_caller]
fn assert_left_out(found: &[(String, String)], expected: &[(&str, &str)]) {
    let found: Vec<_> = found.iter().map(|(driver, why)| (driver.as_str(), why.as_str())).collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn order_asks_only_drivers_with_every_label() {
    let t = TestApp::start().await;
    three_drivers(&t).await;
    t.order_requiring("ORD-1", &["wheelchair", "van"]).await;
    t.run_due().await;
    assert_eq!(asked(&t, "ORD-1").await, ["lift"]);
    let missing = [("bare", "lacks van, wheelchair"), ("van", "lacks wheelchair")];
    assert_left_out(&left_out(&t, "ORD-1").await, &missing);

    t.decline_offer("ORD-1").await;
    t.run_due().await;
    assert_eq!(t.reasons("ORD-1").await.last().unwrap(), "SEARCH_AGAIN");
    let missing = [missing[0], missing[1], ("lift", "declined this order")];
    assert_left_out(&left_out(&t, "ORD-1").await, &missing);
    t.order_requiring("ORD-2", &["van"]).await;
    t.run_due().await;
    assert_eq!(asked(&t, "ORD-2").await, ["van"]);
    t.order("ORD-3").await;
    t.run_due().await;
    assert_eq!(asked(&t, "ORD-3").await, ["bare"], "an order without labels asks any driver");
    t.assert_sound().await;
}

#[tokio::test]
async fn skilled_driver_is_found_behind_many_others() {
    let t = TestApp::with(|config| config.dispatch.candidates = 3).await;
    let crowd: Vec<(String, f64)> = (0..10).map(|n| (format!("B{n}"), f64::from(n))).collect();
    t.drivers(&crowd.iter().map(|(id, m)| (id.as_str(), *m)).collect::<Vec<_>>()).await;
    t.drivers(&[("skilled", 3_000.0)]).await;
    t.sql("UPDATE drivers SET skills = '{plumber}' WHERE id = 'skilled'").await;
    t.order_requiring("ORD-1", &["plumber"]).await;
    t.run_due().await;
    assert_eq!(asked(&t, "ORD-1").await, ["skilled"]);
    t.assert_sound().await;
}

async fn waiting_order_gets_a_skilled_driver(configure: impl FnOnce(&mut Config)) {
    let t = TestApp::with(|config| {
        retry_as_shipped(config);
        configure(config);
    })
    .await;
    t.order_requiring("ORD-1", &["van"]).await;
    t.run_due().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.run_for(secs(60)).await;
    report_position(&t, "D1").await;
    assert_eq!(match_drivers(&t).await, 1);
    assert_eq!(asked(&t, "ORD-1").await, Vec::<&str>::new(), "neither its searches nor the freed driver match");

    set_skills(&t, "D1", &["van", "wheelchair"]).await;
    assert_eq!(match_drivers(&t).await, 1, "a new label is a reason to look");
    assert_eq!(asked(&t, "ORD-1").await, ["D1"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn freed_driver_gets_no_order_that_requires_more() {
    waiting_order_gets_a_skilled_driver(|_| {}).await;
}

#[tokio::test]
async fn labels_count_in_wide_circles_too() {
    waiting_order_gets_a_skilled_driver(|config| config.dispatch.radius_m = 900_000.0).await;
}

#[tokio::test]
async fn search_of_a_waiting_order_finds_new_labels() {
    let t = TestApp::with(retry_as_shipped).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order_requiring("ORD-1", &["van"]).await;
    t.run_for(secs(60)).await;
    assert_eq!(asked(&t, "ORD-1").await, Vec::<&str>::new());
    t.sql("UPDATE drivers SET skills = '{van}'").await;
    t.run_for(secs(15)).await;
    assert_eq!(asked(&t, "ORD-1").await, ["D1"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn driver_who_loses_a_label_keeps_the_offer() {
    let t = TestApp::start().await;
    three_drivers(&t).await;
    t.order_requiring("ORD-1", &["wheelchair"]).await;
    t.run_due().await;
    set_skills(&t, "lift", &[]).await;
    assert_eq!(asked(&t, "ORD-1").await, ["lift"]);
    t.accept_offer("ORD-1").await;
    assert_eq!(t.offers("ORD-1").await, [("lift".to_owned(), OfferState::Accepted)]);
    t.assert_sound().await;
}

#[tokio::test]
async fn dispatcher_may_assign_a_driver_without_the_label() {
    let t = TestApp::start().await;
    three_drivers(&t).await;
    t.order_requiring("ORD-1", &["plumber"]).await;
    t.run_due().await;
    assert_eq!(t.reasons("ORD-1").await.last().unwrap(), "SEARCH_AGAIN");
    t.act("ORD-1", |s| actions::assign_driver(s, &by("dispatcher:test"), &"bare".into())).await.unwrap();
    assert_eq!(t.status("ORD-1").await, OrderStatus::DriverAssigned);
    t.assert_sound().await;
}
