//! The desk: the staff member who handles a waiting order, and drivers who could take it.

use super::{Browser, place};
use accounts::api_keys::AccountRole;
use desk::operator::desk;
use maintenance::{
    periodic::cleanup::{self, CleanupMode},
    recovery::reconciler,
};
use model::decide::actions;
use test_support::{Api, TestApp, secs};

#[tokio::test]
async fn claim_on_an_order_is_shown_without_locking() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.order_of("WAITS", "RENT", "PAID").await;
    t.run_due().await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    let operator = Browser::signed_in(&t, &api, AccountRole::Operator).await;
    let taken = dispatcher.post("/console/orders/WAITS/take", &[]).await;
    assert_eq!((taken.status().as_u16(), place(&taken)), (303, "/console/desk?order=WAITS&did=take"));
    let page = dispatcher.text("/console/desk?order=WAITS&did=take").await;
    assert!(page.contains("</b>You</span>") && page.contains("Other staff see this for ten minutes"), "{page}");
    let page = operator.text("/console/desk").await;
    assert!(page.contains("</b>dispatcher:test-dispatcher</span>") && page.contains("Take over order"), "{page}");
    assert_eq!(operator.post("/console/orders/WAITS/leave", &[]).await.status(), 409);

    // Another staff member can still decide on the order and take over its desk claim.
    let held = operator.post("/console/orders/WAITS/hold", &[("reason", "the customer calls back")]).await;
    assert_eq!(held.status(), 303);
    assert_eq!(operator.post("/console/orders/WAITS/take", &[]).await.status(), 303);
    assert_eq!(dispatcher.post("/console/orders/WAITS/leave", &[]).await.status(), 409);
    let page = dispatcher.text("/console/desk").await;
    assert!(page.contains("</b>operator:test-operator</span>"), "{page}");

    // The desk claim expires.
    t.advance(secs(300)).await;
    assert!(dispatcher.text("/console/desk").await.contains("operator:test-operator"));
    t.advance(secs(301)).await;
    let page = dispatcher.text("/console/desk").await;
    assert!(!page.contains("operator:test-operator") && page.contains("Claim order"), "{page}");
    assert_eq!(operator.post("/console/orders/WAITS/leave", &[]).await.status(), 409);
    cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap();
    assert_eq!(t.count("SELECT count(*) FROM desk_takes").await, 0);

    // The claim is released by hand. The order page shows the same state and buttons.
    assert_eq!(dispatcher.post("/console/orders/WAITS/take", &[]).await.status(), 303);
    let page = operator.text("/console/orders/WAITS").await;
    assert!(
        page.contains("</b>dispatcher:test-dispatcher</span> handles this order.") && page.contains("Take over order"),
        "{page}"
    );
    let page = dispatcher.text("/console/orders/WAITS").await;
    assert!(page.contains("You handle this order.") && page.contains("Release claim"), "{page}");
    let left = dispatcher.post("/console/orders/WAITS/leave", &[("back", "/orders/WAITS")]).await;
    assert_eq!(place(&left), "/console/orders/WAITS?did=leave");
    assert!(!dispatcher.text("/console/desk").await.contains("</b>You</span>"));
    assert_eq!(
        t.texts("SELECT concat_ws(' ', action, subject, actor) FROM audit_staff_actions ORDER BY id").await,
        [
            "ORDER_TAKEN WAITS dispatcher:test-dispatcher",
            "ORDER_TAKEN WAITS operator:test-operator",
            "ORDER_TAKEN WAITS dispatcher:test-dispatcher",
            "ORDER_LEFT WAITS dispatcher:test-dispatcher"
        ]
    );
}

#[tokio::test]
async fn dispatchers_take_only_orders_awaiting_a_person() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.order_of("WAITS", "RENT", "PAID").await;
    t.run_due().await;
    t.order("SEARCHES").await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    for order in ["SEARCHES", "ORD-9"] {
        let refused = dispatcher.post(&format!("/console/orders/{order}/take"), &[]).await;
        assert_eq!(refused.status(), 409, "{order}");
    }
    for role in [AccountRole::Viewer, AccountRole::Support] {
        let person = Browser::signed_in(&t, &api, role).await;
        assert_eq!(person.post("/console/orders/WAITS/take", &[]).await.status(), 403);
        let page = person.text("/console/desk?order=WAITS").await;
        assert!(page.contains("Drivers for order") && !page.contains("Claim order"), "{page}");
    }
    assert_eq!(t.count("SELECT count(*) FROM desk_takes").await, 0);
    assert_eq!(t.count("SELECT count(*) FROM staff_actions").await, 0);
}

#[tokio::test]
async fn desk_ranks_drivers_and_assigns_one() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    for order in ["ORD-1", "ORD-2"] {
        t.order(order).await;
        let held = dispatcher.post(&format!("/console/orders/{order}/hold"), &[("reason", "a test")]).await;
        assert_eq!(held.status(), 303);
    }
    assert!(dispatcher.text("/console/desk?order=ORD-1").await.contains("No driver is nearby"));
    t.drivers(&[("D2", 400.0), ("D1", 100.0)]).await;
    let page = dispatcher.text("/console/desk?order=ORD-1").await;
    let places = ["Assign D1", "Assign D2"].map(|text| page.find(text).unwrap_or_else(|| panic!("{text}: {page}")));
    assert!(places[0] < places[1], "the nearest first: {page}");
    assert_eq!(t.count("SELECT count(*) FROM offers").await, 0, "looking asks no driver");

    let form = [("driver_id", "D1"), ("reason", "asked by phone"), ("back", "/desk")];
    assert_eq!(place(&dispatcher.post("/console/orders/ORD-1/assign", &form).await), "/console/desk?did=assign");
    assert_eq!(t.texts("SELECT driver_id FROM orders WHERE driver_id IS NOT NULL").await, ["D1"]);
    let page = dispatcher.text("/console/desk?order=ORD-1").await;
    assert!(page.contains("In this state, no driver can be assigned to the order."), "{page}");
    let page = dispatcher.text("/console/desk?order=ORD-2").await;
    assert!(
        page.contains("Has an active order") && !page.contains("Assign D1") && page.contains("Assign D2"),
        "{page}"
    );
    assert_eq!(dispatcher.get("/console/desk?order=ORD-9").await.status(), 404);
}

#[tokio::test]
async fn overdue_trip_is_listed_until_it_continues() {
    let t = TestApp::with(|config| {
        config.dispatch.pickup_within = secs(3600);
    })
    .await;
    let api = Api::start(&t.app).await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("LATE").await;
    t.run_due().await;
    t.accept_offer("LATE").await;
    assert_eq!(dispatcher.post("/console/orders/LATE/take", &[]).await.status(), 409, "nothing is wrong with it");
    assert!(dispatcher.text("/console/desk").await.contains("No order waits for a person"));
    t.advance(secs(3604)).await;
    // Boxed, because the future of a debug build is too large for the stack of a test.
    Box::pin(reconciler::reconcile_once(&t.app.maintenance)).await.unwrap().expect("no other process reconciles");
    t.run_due().await;
    let page = dispatcher.text("/console/desk").await;
    assert!(page.contains("LATE") && page.contains("The trip is overdue"), "{page}");
    assert!(
        page.contains("Release from driver") && !page.contains(">Assign driver<") && !page.contains("Search again"),
        "{page}"
    );
    assert_eq!(dispatcher.post("/console/orders/LATE/take", &[]).await.status(), 303);
    assert!(dispatcher.text("/console/desk").await.contains("</b>You</span>"));
    t.act("LATE", |s| actions::record_pickup(s, &"D1".into())).await.unwrap();
    assert!(dispatcher.text("/console/desk").await.contains("No order waits for a person"));
    t.assert_sound().await;
}

/// The search for candidate drivers uses page connections, so it neither waits for order changes nor delays them.
#[tokio::test]
async fn candidates_on_the_desk_use_page_connections() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    let s = t.snapshot("ORD-1").await;
    t.app.core.batches.close().await;
    t.app.core.db.close().await;
    let ranking = desk::rank_now(&t.app.clone().showing().desk, &s).await.unwrap();
    let drivers: Vec<_> = ranking.ranked.iter().map(|ranked| ranked.driver_id.as_str()).collect();
    assert_eq!(drivers, ["D1", "D2"]);
}

#[tokio::test]
async fn driver_field_suggests_drivers_nearby() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.order_of("WAITS", "RENT", "PAID").await;
    t.run_due().await;
    t.drivers(&[("D1", 400.0)]).await;
    let dispatcher = Browser::signed_in(&t, &api, AccountRole::Dispatcher).await;
    assert!(!dispatcher.text("/console/desk").await.contains("<datalist"), "no order was chosen");
    let page = dispatcher.text("/console/desk?order=WAITS").await;
    assert!(page.contains("list=\"suggested\"") && page.contains("<option value=\"D1\">400 m, idle for "), "{page}");
}
