//! Drivers are asked one after another until one accepts.

use model::{
    decide::actions,
    order::{OfferState, OrderStatus},
};
use orders::change::ChangeError;
use test_support::{TestApp, by, ids, millis, retry_as_shipped, secs};

#[tokio::test]
async fn an_accepted_order_is_carried_out() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    assert_eq!(ids(&t.run_due().await)[0], "dispatch:ORD-1:1");
    assert_eq!(t.accept_offer("ORD-1").await, "D1");
    assert_eq!(t.status("ORD-1").await, OrderStatus::DriverAssigned);
    t.carry_out("ORD-1", "D1").await;

    assert_eq!(t.status("ORD-1").await, OrderStatus::Completed);
    let history = ["ORDER_CREATED", "ATTEMPT_STARTED", "OFFER_ACCEPTED", "PICKED_UP", "COMPLETED"];
    assert_eq!(t.reasons("ORD-1").await, history);
    // The lifetime job is still in Redis and finds itself superseded.
    t.run_for(secs(1801)).await;
    assert_eq!(t.reasons("ORD-1").await, history);
    assert_eq!(t.timers().await.len(), 0);
    t.assert_sound().await;
}

#[tokio::test]
async fn lapsed_offer_moves_on_exactly_at_its_deadline() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let lapsed = t.live_offer("ORD-1").await;

    t.advance(secs(120) - millis(1)).await;
    assert_eq!(ids(&t.run_due().await), Vec::<&str>::new());
    t.advance(millis(1)).await;
    assert_eq!(ids(&t.run_due().await)[0], "timeout:ORD-1:1");
    assert_eq!(t.asked("ORD-1").await, "D2");
    let late = t.accept("ORD-1", "D1", lapsed.id).await;
    assert!(matches!(late, Err(ChangeError::Refused(_))), "{late:?}");
    let states = [("D1".to_owned(), OfferState::Expired), ("D2".to_owned(), OfferState::Offered)];
    assert_eq!(t.offers("ORD-1").await, states);
    t.assert_sound().await;
}

#[tokio::test]
async fn driver_who_declined_is_never_asked_again() {
    let t = TestApp::with(retry_as_shipped).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    assert_eq!(t.decline_offer("ORD-1").await, "D1");
    assert_eq!(ids(&t.run_due().await)[0], "timeout:ORD-1:1");
    assert_eq!(t.asked("ORD-1").await, "D2");

    // D1 gets no further offer in any round until the lifetime ends.
    t.run_for(secs(1801)).await;
    let asked: Vec<_> = t.offers("ORD-1").await.into_iter().map(|(driver, _)| driver).collect();
    assert!(asked.len() > 10, "{asked:?}");
    assert_eq!(asked.iter().filter(|d| *d == "D1").count(), 1, "{asked:?}");
    t.assert_sound().await;
}

#[tokio::test]
async fn new_round_asks_lapsed_drivers_after_15_s() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.advance(secs(120)).await;
    t.run_due().await;
    let s = t.snapshot("ORD-1").await;
    assert_eq!((s.order.status, s.order.round, s.live_offer()), (OrderStatus::Dispatching, 2, None));

    t.advance(secs(15) - millis(1)).await;
    assert_eq!(ids(&t.run_due().await), Vec::<&str>::new());
    t.advance(millis(1)).await;
    assert_eq!(ids(&t.run_due().await)[0], "dispatch:ORD-1:2");
    let again = t.live_offer("ORD-1").await;
    assert_eq!((again.driver_id.as_str(), again.attempt_no, again.round), ("D1", 2, 2));
    t.assert_sound().await;
}

#[tokio::test]
async fn waiting_order_adds_no_history() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    t.run_for(secs(120)).await;
    assert!(t.snapshot("ORD-1").await.order.round > 5, "it was searched for again and again");
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED", "SEARCH_AGAIN"]);
    t.drivers(&[("D1", 100.0)]).await;
    t.run_for(secs(15)).await;
    assert_eq!(t.asked("ORD-1").await, "D1");
    t.assert_sound().await;
}

#[tokio::test]
async fn nearest_then_longest_idle_driver_is_asked() {
    let t = TestApp::start().await;
    t.drivers(&[("far", 3000.0), ("near", 100.0), ("beyond", 5200.0), ("b-idle", 900.0), ("a-busy-lately", 900.0)])
        .await;
    t.sql("UPDATE drivers SET idle_since = idle_since - interval '1 hour' WHERE id = 'b-idle'").await;
    t.sql("INSERT INTO drivers (id, service_types, lat, lng) VALUES ('other-trade', '{DELIVERY}', -6.2088, 106.8456)")
        .await;
    t.sql("INSERT INTO drivers (id, service_types, lat, lng, available) VALUES ('off', '{RIDE}', -6.2088, 106.8456, false)")
        .await;
    t.order("ORD-1").await;
    let mut asked = Vec::new();
    t.run_due().await;
    while let Some(offer) = t.snapshot("ORD-1").await.live_offer() {
        asked.push(offer.driver_id.clone());
        t.decline_offer("ORD-1").await;
        t.run_due().await;
    }
    assert_eq!(asked, ["near", "b-idle", "a-busy-lately", "far"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn few_drivers_are_shared_by_many_orders_one_offer_each() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0), ("D3", 300.0)]).await;
    for n in 0..12 {
        t.order(&format!("ORD-{n}")).await;
    }
    t.run_due().await;
    assert_eq!(t.count("SELECT count(*) FROM offers WHERE state = 'offered'").await, 3);
    assert_eq!(t.count("SELECT count(DISTINCT driver_id) FROM offers WHERE state = 'offered'").await, 3);

    // A driver who accepts is busy until the end of the trip. Every order eventually gets a driver.
    for _ in 0..12 {
        for order in t.texts("SELECT order_id FROM offers WHERE state = 'offered'").await {
            let driver = t.accept_offer(&order).await;
            assert_eq!(
                t.count(&format!(
                    "SELECT count(*) FROM orders WHERE driver_id = '{driver}'
                AND status = 'DRIVER_ASSIGNED'"
                ))
                .await,
                1
            );
            t.run_for(secs(5)).await;
            t.carry_out(&order, &driver).await;
        }
        t.run_for(secs(16)).await;
    }
    assert_eq!(t.count("SELECT count(*) FROM orders WHERE status = 'COMPLETED'").await, 12);
    t.assert_sound().await;
}

#[tokio::test]
async fn a_driver_with_an_active_order_is_not_asked() {
    let t = TestApp::with(retry_as_shipped).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    t.order("ORD-2").await;
    t.run_for(secs(300)).await;
    assert_eq!(t.offers("ORD-2").await, []);

    t.carry_out("ORD-1", "D1").await;
    t.run_for(secs(15)).await;
    assert_eq!(t.asked("ORD-2").await, "D1");
    t.assert_sound().await;
}

#[tokio::test]
async fn a_driver_cannot_be_given_a_second_order_by_hand() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.order("ORD-2").await;
    t.act("ORD-1", |s| actions::assign_driver(s, &by("operator:test"), &"D1".into())).await.unwrap();
    let second = t.act("ORD-2", |s| actions::assign_driver(s, &by("operator:test"), &"D1".into())).await;
    assert!(matches!(second, Err(ChangeError::Refused(model::decide::OrderRefusal::DriverBusy))), "{second:?}");
    assert_eq!(t.status("ORD-2").await, OrderStatus::Dispatching);
    t.assert_sound().await;
}
