//! Accepts that the gate answers alone, and accepts that need the row.

use std::time::{Duration, Instant};

use serde_json::json;

use app::App;
use foundation::db;
use model::{
    actor::Actor,
    decide::{OrderRefusal, actions},
    order::Offer,
};
use orders::{accept, change::ChangeError, changed::Changed};
use test_support::{Api, Counting, TestApp, by, eventually, id};

const LOCK: &str = "trip_lock:ORD-1";
const KNOWN: &str = "dispatchq:offered:{trip_lock:ORD-1}";

/// Offers ORD-1 to D1, D2 and D3.
async fn offered_to_three() -> (TestApp, Vec<Offer>) {
    let t = TestApp::with(|config| config.dispatch.ask_at_once = 3).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0), ("D3", 300.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let offers = t.live_offers("ORD-1").await;
    assert_eq!(offers.len(), 3);
    (t, offers)
}

fn offer_to<'a>(offers: &'a [Offer], driver: &str) -> &'a Offer {
    offers.iter().find(|offer| offer.driver_id.as_str() == driver).unwrap()
}

fn refusal(answer: Result<Changed, ChangeError>) -> OrderRefusal {
    match answer {
        Err(ChangeError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn late_accepts_are_answered_without_postgres() {
    let (t, offers) = offered_to_three().await;
    // This process has cached the drivers' keys and has lost its connection to Postgres.
    let pool = db::connect_pool(&t.app.config.database).await.unwrap();
    let app = App::new((*t.app.config).clone(), pool, t.app.core.store.clone()).unwrap();
    let keys = [t.driver_key("D1").await, t.driver_key("D2").await, t.driver_key("D3").await];
    app.accounts.keys.check_revision(&app.core.db).await.unwrap();
    for key in &keys {
        assert!(app.accounts.keys.find_owner(&app.core.db, key).await.unwrap().is_some());
    }
    app.core.close().await;
    let api = Api::start(&app).await;
    let press = async |n: usize| {
        let driver = format!("D{n}");
        let body = json!({ "driver_id": driver, "offer_id": offer_to(&offers, &driver).id });
        let answer = api.post("/api/v1/orders/ORD-1/accept", &keys[n - 1], body).await;
        (answer.status, answer.text("error_code").to_owned())
    };

    let _: () = t.redis(&["SET", LOCK, "D1", "EX", "10"]).await;
    assert_eq!(press(2).await, (409, "RESERVATION_IN_PROGRESS".to_owned()));
    let _: () = t.redis(&["DEL", LOCK]).await;
    t.accept("ORD-1", "D1", offer_to(&offers, "D1").id).await.unwrap();
    let _: () = t.redis(&["DEL", LOCK]).await;
    // The process caches the previous answer of Redis for a short time.
    let taken = (409, "ALREADY_ASSIGNED".to_owned());
    eventually("the gate knows that the order was taken", async || press(2).await == taken).await;
    assert_eq!(press(3).await, taken);
    // The gate passes all other accepts on to the row, which this process cannot read.
    assert_eq!(press(1).await, (503, "UNAVAILABLE".to_owned()), "the winner is answered by the row");
    let _: () = t.redis(&["DEL", KNOWN]).await;
    let unavailable = (503, "UNAVAILABLE".to_owned());
    eventually("an offer that Redis does not know is left to the row", async || press(2).await == unavailable).await;
    t.assert_sound().await;
}

/// An accept of an order with a single offer also passes the gate without a read of the row.
#[tokio::test]
async fn single_offer_passes_gate_without_reading_row() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let offer = t.live_offer("ORD-1").await;
    let pool = db::connect_pool(&t.app.config.database).await.unwrap();
    let cut_off = App::new((*t.app.config).clone(), pool, t.app.core.store.clone()).unwrap();
    cut_off.core.close().await;
    let (order, driver) = (id("ORD-1"), offer.driver_id.clone());
    let by_driver = Actor::for_driver(&driver);
    let press = || accept::accept_offer(&cut_off.orders, &order, &driver, offer.id, &by_driver);

    let _: () = t.redis(&["SET", LOCK, "D9", "EX", "10"]).await;
    assert_eq!(refusal(press().await), OrderRefusal::ReservationInProgress, "a process died there in D9's name");
    let _: () = t.redis(&["DEL", LOCK]).await;
    assert!(matches!(press().await, Err(ChangeError::Database(_))), "the row alone decides");
    assert_eq!(t.redis::<i64>(&["EXISTS", LOCK, KNOWN]).await, 0, "who fails at the row gives the gate back");

    // Redis knows no offer, as after a flush.
    assert!(t.accept("ORD-1", "D1", offer.id).await.unwrap().is_written());
    assert!(!t.accept("ORD-1", "D1", offer.id).await.unwrap().is_written(), "twice is once");
    t.assert_sound().await;
}

#[tokio::test]
async fn next_attempt_replaces_the_known_offer() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let first = t.live_offer("ORD-1").await;
    t.act("ORD-1", |s| actions::decline_offer(s, &first.driver_id, first.id, None)).await.unwrap();
    t.run_due().await;
    let second = t.live_offer("ORD-1").await;
    let known: Vec<String> = t.redis(&["HKEYS", KNOWN]).await;
    assert_eq!(known, [second.id.to_string()]);
    let late = refusal(t.accept("ORD-1", first.driver_id.as_str(), first.id).await);
    assert_eq!(late, OrderRefusal::OfferDeclined);
    assert_eq!(t.redis::<i64>(&["EXISTS", LOCK]).await, 0, "an offer that has ended takes no lock");
    t.accept("ORD-1", second.driver_id.as_str(), second.id).await.unwrap();
    t.assert_sound().await;
}

#[tokio::test]
async fn an_offer_that_has_ended_is_answered_by_the_row() {
    let (t, offers) = offered_to_three().await;
    let second = offer_to(&offers, "D2");
    t.act("ORD-1", |s| actions::decline_offer(s, &second.driver_id, second.id, None)).await.unwrap();
    let _: () = t.redis(&["SET", LOCK, "D1", "EX", "10"]).await;
    assert_eq!(refusal(t.accept("ORD-1", "D2", second.id).await), OrderRefusal::OfferDeclined);
    t.cancel("ORD-1").await.unwrap();
    let late = refusal(t.accept("ORD-1", "D3", offer_to(&offers, "D3").id).await);
    assert!(matches!(late, OrderRefusal::OrderFinished(_)), "{late:?}");
    t.assert_sound().await;
}

#[tokio::test]
async fn returned_order_is_taken_by_new_offers() {
    let (t, old) = offered_to_three().await;
    t.accept("ORD-1", "D1", offer_to(&old, "D1").id).await.unwrap();
    t.act("ORD-1", |s| actions::cancel_by_driver(s, &"D1".into(), None)).await.unwrap();
    t.run_due().await;
    let new = t.live_offers("ORD-1").await;
    assert_eq!(new.len(), 2, "D2 and D3 are asked again");
    assert_eq!(refusal(t.accept("ORD-1", "D2", offer_to(&old, "D2").id).await), OrderRefusal::AlreadyAssigned);
    t.accept("ORD-1", "D2", offer_to(&new, "D2").id).await.unwrap();
    assert_eq!(refusal(t.accept("ORD-1", "D3", offer_to(&new, "D3").id).await), OrderRefusal::AlreadyAssigned);
    t.assert_sound().await;
}

#[tokio::test]
async fn driver_failing_at_the_row_frees_the_gate() {
    let (t, offers) = offered_to_three().await;
    t.order("ORD-2").await;
    t.act("ORD-2", |s| actions::assign_driver(s, &by("operator:test"), &"D1".into())).await.unwrap();
    for _ in 0..2 {
        let first = t.accept("ORD-1", "D1", offer_to(&offers, "D1").id).await;
        assert_eq!(refusal(first), OrderRefusal::DriverBusy);
        assert_eq!(t.redis::<i64>(&["EXISTS", LOCK]).await, 0);
    }
    assert_eq!(t.live_offers("ORD-1").await.len(), 3, "D1 may be free again in time");
    t.accept("ORD-1", "D2", offer_to(&offers, "D2").id).await.unwrap();
    t.assert_sound().await;
}

#[tokio::test]
async fn without_redis_one_accept_tries_to_write() {
    let counting = Counting::start();
    let (mut t, offers) = offered_to_three().await;
    t.redis.stop().await.unwrap();
    let updates =
        |result: &str| counting.read().value(&format!("dispatchq_order_updates_total{{result=\"{result}\"}}"));
    let before = updates("written");
    let press = async |n: usize| t.accept("ORD-1", &format!("D{n}"), offer_to(&offers, &format!("D{n}")).id).await;
    let begun = Instant::now();
    let (first, second, third) = tokio::join!(press(1), press(2), press(3));
    let took = begun.elapsed();
    let (won, lost): (Vec<_>, Vec<_>) = [first, second, third].into_iter().partition(Result::is_ok);
    assert_eq!(won.len(), 1);
    assert!(lost.into_iter().all(|answer| refusal(answer) == OrderRefusal::AlreadyAssigned));
    assert_eq!(updates("written") - before, 1.0);
    // Waiting accepts try too when the first one takes longer than half a second, for example because the machine
    // stalled.
    assert!(updates("conflict") == 0.0 || took > Duration::from_millis(500));
    t.redis.restart().await.unwrap();
    eventually("Redis answers", || async { t.app.core.store.ping().await.is_ok() }).await;
    t.assert_sound().await;
}

/// The process that wrote the win knows it even before Redis does. It updates Redis before it ends.
#[tokio::test]
async fn winner_is_answered_before_redis_is_updated() {
    let (t, offers) = offered_to_three().await;
    let pool = db::connect_pool(&t.app.config.database).await.unwrap();
    let app = App::new((*t.app.config).clone(), pool, t.app.core.store.clone()).unwrap();
    let press = async |n: usize| {
        let Offer { id: offer, driver_id, .. } = offer_to(&offers, &format!("D{n}"));
        accept::accept_offer_at_once(&app.orders, &id("ORD-1"), driver_id, *offer, &Actor::for_driver(driver_id)).await
    };
    let begun = Instant::now();
    assert!(press(1).await.unwrap().is_written());
    let _: () = t.redis(&["DEL", LOCK, KNOWN]).await;
    app.core.close().await;
    let second = press(2).await;
    // The win is cached for one second. That second may be over on a machine that stalled.
    assert!(
        matches!(second, Err(ChangeError::Refused(OrderRefusal::AlreadyAssigned))) || begun.elapsed().as_secs() > 0,
        "{second:?}"
    );
    let tell_all = async |app: &App| {
        app.core.behind_answers.close();
        app.core.behind_answers.wait().await;
    };
    tell_all(&app).await;

    t.order("ORD-2").await;
    t.run_due().await;
    let asked = t.live_offers("ORD-2").await;
    assert_eq!(asked.len(), 2, "D1 has an order");
    let offer = &asked[0];
    accept::accept_offer_at_once(
        &t.app.orders,
        &id("ORD-2"),
        &offer.driver_id,
        offer.id,
        &Actor::for_driver(&offer.driver_id),
    )
    .await
    .unwrap();
    tell_all(&t.app).await;
    let taken: Option<String> = t.redis(&["HGET", "dispatchq:offered:{trip_lock:ORD-2}", "taken"]).await;
    assert_eq!(taken, Some(offer.id.to_string()));
    t.assert_sound().await;
}
