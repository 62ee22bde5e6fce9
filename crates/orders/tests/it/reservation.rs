//! When many drivers accept an order concurrently, exactly one gets it, regardless of the state of Redis.

mod gate;

use std::sync::Arc;

use jobs::OrderId;
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::json;
use tokio::task::JoinSet;

use servers::TcpProxy;

use app::App;
use maintenance::recovery::reconciler;
use model::{
    actor::Actor,
    decide::{Decision, OrderRefusal, actions},
    ids::DriverId,
    order::{Offer, OrderStatus, Snapshot},
    policy::ExhaustionAction,
};
use orders::{
    accept,
    change::{ChangeError, decided},
    seen::{Basis, SeenOrder},
};
use queue::Store;
use settings::DispatchOverrides;
use test_support::{
    Api, TestApp, by, eventually, id, is_slow_profile, lasting_transaction, millis, secs, update_order,
};

const DRIVERS: usize = 30;

async fn broadcast() -> TestApp {
    let t = TestApp::with(|config| {
        config.dispatch.ask_at_once = 30;
        config.database.max_connections = 40;
    })
    .await;
    let drivers: Vec<(String, f64)> = (0..DRIVERS).map(|n| (format!("D{n}"), 100.0)).collect();
    t.drivers(&drivers.iter().map(|(id, m)| (id.as_str(), *m)).collect::<Vec<_>>()).await;
    t
}

/// Creates an order that is offered to all drivers.
async fn offered(t: &TestApp, order: &str) -> Vec<Offer> {
    t.order(order).await;
    t.run_due().await;
    let offers = t.live_offers(order).await;
    assert_eq!(offers.len(), DRIVERS);
    offers
}

/// Accepts all offers concurrently through this app. Returns the number of winners and the errors of the other drivers.
async fn race(app: &App, order: &str, offers: Vec<Offer>) -> (usize, Vec<ChangeError>) {
    let start = Arc::new(tokio::sync::Barrier::new(offers.len()));
    let mut racers = JoinSet::new();
    for offer in offers {
        let (app, order, start) = (app.clone(), id(order), start.clone());
        racers.spawn(async move {
            start.wait().await;
            accept::accept_offer(&app.orders, &order, &offer.driver_id, offer.id, &Actor::for_driver(&offer.driver_id))
                .await
        });
    }
    let (won, lost): (Vec<_>, Vec<_>) = racers.join_all().await.into_iter().partition(Result::is_ok);
    (won.len(), lost.into_iter().filter_map(Result::err).collect())
}

fn is_beaten(error: &ChangeError) -> bool {
    matches!(error, ChangeError::Refused(OrderRefusal::AlreadyAssigned | OrderRefusal::ReservationInProgress))
}

async fn finish(t: &TestApp, order: &str) {
    let driver = t.snapshot(order).await.order.driver_id.expect("has a driver");
    t.carry_out(order, &driver).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_thirty_concurrent_accepts_wins() {
    let t = broadcast().await;
    for round in 0..10 {
        let order = format!("ORD-{round}");
        let offers = offered(&t, &order).await;
        let (won, lost) = race(&t.app, &order, offers).await;
        assert_eq!((won, lost.len()), (1, DRIVERS - 1));
        assert!(lost.iter().all(is_beaten), "{lost:?}");
        finish(&t, &order).await;
    }
    t.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_the_answers_are_the_same() {
    let mut t = broadcast().await;
    let offers = offered(&t, "ORD-1").await;
    t.redis.stop().await.unwrap();
    let (won, lost) = race(&t.app, "ORD-1", offers).await;
    assert_eq!((won, lost.len()), (1, DRIVERS - 1));
    assert!(lost.iter().all(is_beaten), "{lost:?}");
    t.redis.restart().await.unwrap();
    eventually("Redis answers", || async { t.app.core.store.ping().await.is_ok() }).await;
    finish(&t, "ORD-1").await;
    let offers = offered(&t, "ORD-2").await;
    assert_eq!(race(&t.app, "ORD-2", offers).await.0, 1);
    t.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_redis_and_one_flushed_meanwhile_change_nothing() {
    let t = broadcast().await;
    let proxy = TcpProxy::start(t.redis.port()).await.unwrap();
    let store = Store::connect(&format!("redis://127.0.0.1:{}", proxy.port())).await.unwrap();
    let slow = App::new((*t.app.config).clone(), t.app.core.db.clone(), store).unwrap();
    for round in 0..6 {
        let order = format!("ORD-{round}");
        let offers = offered(&t, &order).await;
        proxy.set_delay(if round % 2 == 0 { millis(200) } else { millis(5) });
        let flush = async {
            tokio::time::sleep(millis(10)).await;
            let _: () = t.redis(&["DEL", &format!("trip_lock:{order}")]).await;
        };
        let ((won, lost), ()) = tokio::join!(race(&slow, &order, offers), flush);
        assert_eq!((won, lost.len()), (1, DRIVERS - 1), "round {round}");
        assert!(lost.iter().all(is_beaten), "{lost:?}");
        proxy.set_delay(millis(0));
        finish(&t, &order).await;
    }
    t.assert_sound().await;
}

#[tokio::test]
async fn dead_process_blocks_the_gate_ten_seconds() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let offer = t.live_offer("ORD-1").await;
    let _: () = t.redis(&["SET", "trip_lock:ORD-1", "D9", "EX", "10"]).await;
    let answer = t.accept("ORD-1", "D1", offer.id).await;
    assert!(matches!(answer, Err(ChangeError::Refused(OrderRefusal::ReservationInProgress))), "{answer:?}");
    // The driver's own lock does not block it.
    let _: () = t.redis(&["SET", "trip_lock:ORD-1", "D1", "EX", "10"]).await;
    assert!(t.accept("ORD-1", "D1", offer.id).await.unwrap().is_written());
    assert!(!t.accept("ORD-1", "D1", offer.id).await.unwrap().is_written(), "twice is once");

    t.order("ORD-2").await;
    t.act("ORD-1", |s| actions::record_pickup(s, &"D1".into())).await.unwrap();
    t.act("ORD-1", |s| actions::complete_trip(s, &"D1".into())).await.unwrap();
    t.run_due().await;
    let offer = t.live_offer("ORD-2").await;
    t.accept("ORD-2", "D1", offer.id).await.unwrap();
    let left: i64 = t.redis(&["PTTL", "trip_lock:ORD-2"]).await;
    assert!((1..=10_000).contains(&left), "the lock of the gate ends by itself: {left}");
    t.assert_sound().await;
}

#[tokio::test]
async fn a_driver_who_hangs_up_leaves_nothing_half_done() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    let (api, key) = (Api::start(&t.app).await, t.driver_key("D1").await);
    for n in 0..10_u64 {
        let order = format!("ORD-{n}");
        t.order(&order).await;
        t.run_due().await;
        let offer = t.live_offer(&order).await;
        let path = format!("/api/v1/orders/{order}/accept");
        let answer = json!({ "driver_id": "D1", "offer_id": offer.id });
        let accepting = api.post(&path, &key, answer.clone());
        let _ = tokio::time::timeout(std::time::Duration::from_micros(n * 400), accepting).await;
        // The first request was either completed or never started.
        assert_eq!(api.post(&path, &key, answer).await.status, 200);
        assert_eq!(t.status(&order).await, OrderStatus::DriverAssigned);
        t.carry_out(&order, "D1").await;
    }
    t.assert_sound().await;
}

#[tokio::test]
async fn who_may_not_take_the_order_leaves_no_lock() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let offer = t.live_offer("ORD-1").await;
    let lock = async || -> i64 { t.redis(&["EXISTS", "trip_lock:ORD-1"]).await };
    let foreign = t.accept("ORD-1", "D2", offer.id).await;
    assert!(matches!(foreign, Err(ChangeError::Refused(OrderRefusal::NotYourOffer))), "{foreign:?}");
    assert_eq!(lock().await, 0, "who was not asked never reaches the gate");

    t.order("ORD-2").await;
    t.act("ORD-2", |s| actions::assign_driver(s, &by("operator:test"), &"D1".into())).await.unwrap();
    let busy = t.accept("ORD-1", "D1", offer.id).await;
    assert!(matches!(busy, Err(ChangeError::Refused(OrderRefusal::DriverBusy))), "{busy:?}");
    assert_eq!(lock().await, 0, "who fails gives the gate back");

    t.advance(secs(120)).await;
    let late = t.accept("ORD-1", "D1", offer.id).await;
    assert!(matches!(late, Err(ChangeError::Refused(OrderRefusal::OfferExpired))), "{late:?}");
    assert_eq!(lock().await, 0);
}

/// A concurrent action on an order.
#[derive(Debug, Clone)]
enum Deed {
    Accept(Offer),
    Decline(Offer),
    Withdraw(Offer),
    Cancel,
    DriverCancel(DriverId),
    Release,
    PickUp(DriverId),
    /// A process dies after it has set the gate for this driver.
    DieAtTheGate(DriverId),
}

/// Performs an action and returns whether it changed the order. A refusal is fine; the history check decides.
async fn perform(app: &App, order: &OrderId, deed: Deed) -> bool {
    let done = match deed {
        Deed::Accept(offer) => {
            accept::accept_offer(&app.orders, order, &offer.driver_id, offer.id, &Actor::for_driver(&offer.driver_id))
                .await
        }
        Deed::Decline(o) => {
            update_order(&app.orders, order, |s| actions::decline_offer(s, &o.driver_id, o.id, None)).await
        }
        Deed::Withdraw(offer) => {
            update_order(&app.orders, order, |s| actions::withdraw_offer(s, offer.id, "test")).await
        }
        Deed::Cancel => {
            update_order(&app.orders, order, |s| actions::cancel_order(s, &by("producer:test"), None)).await
        }
        Deed::DriverCancel(driver) => {
            update_order(&app.orders, order, |s| actions::cancel_by_driver(s, &driver, None)).await
        }
        Deed::Release => {
            update_order(&app.orders, order, |s| actions::release_driver(s, &by("operator:test"), None)).await
        }
        Deed::PickUp(driver) => update_order(&app.orders, order, |s| actions::record_pickup(s, &driver)).await,
        Deed::DieAtTheGate(driver) => {
            let mut lock = redis::cmd("SET");
            lock.arg(format!("trip_lock:{order}")).arg(driver.as_str()).arg("NX").arg("PX").arg(30);
            let _ = app.core.store.run_command::<Option<String>>("test", &lock).await;
            return false;
        }
    };
    matches!(done, Ok(changed) if changed.is_written())
}

/// Returns random actions that fit the state of the order. Returns none when only timers may change it.
fn rivals(s: &Snapshot, rng: &mut StdRng) -> Vec<Deed> {
    let offers: Vec<Offer> = s.live_offers().cloned().collect();
    let mut deeds = Vec::new();
    match (s.order.status, &s.order.driver_id) {
        (OrderStatus::Dispatching, _) if !offers.is_empty() && !rng.random_ratio(1, 6) => {
            for _ in 0..rng.random_range(2..5) {
                let offer = offers[rng.random_range(0..offers.len())].clone();
                deeds.push(match rng.random_range(0..16) {
                    0..7 => Deed::Accept(offer),
                    7..11 => Deed::Decline(offer),
                    11..13 => Deed::Withdraw(offer),
                    13 => Deed::DieAtTheGate(offer.driver_id),
                    _ => Deed::Cancel,
                });
            }
        }
        (OrderStatus::DriverAssigned, Some(driver)) => {
            let all = [
                Deed::DriverCancel(driver.clone()),
                Deed::Release,
                Deed::PickUp(driver.clone()),
                Deed::PickUp(driver.clone()),
                Deed::Cancel,
            ];
            deeds.extend(all.sample(rng, 2).cloned());
        }
        _ => {}
    }
    deeds
}

/// Runs concurrent actions on an order until it ends, while its timers fire. The seed selects the actions and their
/// delays. Returns the number of races.
async fn scramble(t: &TestApp, order: &str, seed: u64, pace: u32) -> usize {
    let mut rng = StdRng::seed_from_u64(seed);
    // Half of the orders have the longer times of RENT, so that they are raced for on a busy machine too.
    let service_type = if (seed / 2).is_multiple_of(2) { "RIDE" } else { "RENT" };
    t.order_of(order, service_type, if seed.is_multiple_of(2) { "PAID" } else { "UNPAID" }).await;
    let mut races = 0;
    loop {
        let s = t.snapshot(order).await;
        if s.order.status == OrderStatus::PickedUp {
            let driver = s.order.driver_id.clone().unwrap();
            t.act(order, |s| actions::complete_trip(s, &driver)).await.unwrap();
        }
        if s.order.status.is_closed() || s.order.status == OrderStatus::PickedUp {
            return races;
        }
        let mut running = JoinSet::new();
        for deed in rivals(&s, &mut rng) {
            let (app, order, pause) = (t.app.clone(), id(order), millis(rng.random_range(0..4)));
            running.spawn(async move {
                tokio::time::sleep(pause).await;
                perform(&app, &order, deed).await
            });
        }
        races += usize::from(running.len() > 1);
        if running.is_empty() {
            tokio::time::sleep(millis(20) * pace).await;
        }
        running.join_all().await;
    }
}

/// Runs the due jobs, each in its own task. One run in forty dies before its result is stored; the job runs again when
/// its lease expires.
async fn work(t: Arc<TestApp>) {
    loop {
        for leased in t.try_take().await.unwrap_or_default() {
            let t = t.clone();
            tokio::spawn(async move {
                let outcome = t.perform(&leased).await;
                if !rand::random_ratio(1, 40) {
                    t.settle(&leased, outcome).await;
                }
            });
        }
        tokio::time::sleep(millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_interleavings_leave_a_clean_history() {
    const RACES: usize = 2_000;
    const AT_ONCE: usize = 30;
    const MOST_ORDERS: u64 = 3_600;
    // On machines whose processes stall, an order that lives 700 ms would see hardly any race.
    let pace = if is_slow_profile() { 5 } else { 1 };
    let t = TestApp::on_real_time(|config| {
        config.dispatch.attempt = millis(150) * pace;
        config.dispatch.retry = vec![millis(5) * pace];
        config.dispatch.lifetime = millis(700) * pace;
        config.dispatch.ask_at_once = 3;
        config.dispatch.offers_per_driver = 2;
        let slower = DispatchOverrides {
            attempt: Some(secs(2)),
            lifetime: Some(secs(8)),
            exhausted: Some(ExhaustionAction::SearchAgain),
            ..DispatchOverrides::default()
        };
        config.service_types.insert("RENT".into(), slower);
    })
    .await;
    let drivers: Vec<(String, f64)> = (0..60).map(|n| (format!("D{n}"), 100.0)).collect();
    t.drivers(&drivers.iter().map(|(id, m)| (id.as_str(), *m)).collect::<Vec<_>>()).await;
    let t = Arc::new(t);
    let worker = tokio::spawn(work(t.clone()));
    // A busy machine runs fewer races per order and needs more orders. A new order starts whenever one ends.
    let (mut races, mut orders, mut begun) = (0, JoinSet::new(), 0);
    while races <= RACES || !not_yet_seen(&t).await.is_empty() {
        assert!(begun < MOST_ORDERS, "{races} races, and never {:?}", not_yet_seen(&t).await);
        while orders.len() < AT_ONCE {
            let (t, n) = (t.clone(), begun);
            orders.spawn(async move { scramble(&t, &format!("ORD-{n}"), n, pace).await });
            begun += 1;
        }
        races += orders.join_next().await.unwrap().unwrap();
    }
    orders.join_all().await;
    worker.abort();
    // The reconciler completes the work of the runs that died.
    reconciler::reconcile_in_full(&t.app.maintenance).await.unwrap();
    t.assert_sound().await;
}

/// Reasons that the races must produce and that the history does not contain yet.
async fn not_yet_seen(t: &TestApp) -> Vec<String> {
    let wanted = [
        "OFFER_ACCEPTED",
        "DRIVER_CANCELLED",
        "TAKEN_BACK",
        "OFFER_DECLINED",
        "DRIVER_DECLINED",
        "OFFER_WITHDRAWN",
        "DRIVER_WITHDRAWN",
        "ATTEMPT_TIMEOUT",
        "LIFETIME_TIMEOUT",
        "CANCELLED_BY_USER",
        "COMPLETED",
    ];
    sqlx::query_scalar("SELECT unnest($1::text[]) EXCEPT SELECT reason FROM order_events")
        .bind(&wanted[..])
        .fetch_all(&t.app.core.db)
        .await
        .unwrap()
}

/// The driver's accept is decided in time and waits for the row lock; the driver repeats it after the offer has
/// expired. Both requests get the same answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_repeat_of_accept_gets_the_same_answer() {
    let t = Arc::new(TestApp::start().await);
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let offer = t.live_offer("ORD-1").await;
    let accept = || {
        let (t, offer) = (t.clone(), offer.clone());
        tokio::spawn(async move { t.accept("ORD-1", &offer.driver_id, offer.id).await })
    };
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    let mut elsewhere = lasting_transaction(&t.postgres).await;
    sqlx::query("SELECT 1 FROM orders FOR UPDATE").execute(&mut *elsewhere).await.unwrap();
    let first = accept();
    eventually("the first waits to be written", || async { t.count(waiting).await == 1 }).await;
    t.advance(secs(3600)).await;
    let repeat = accept();
    let is_decided = async || repeat.is_finished() || t.count(waiting).await == 2;
    eventually("the repeat is decided, or waits for the first", is_decided).await;
    elsewhere.commit().await.unwrap();
    let (first, repeat) = (first.await.unwrap(), repeat.await.unwrap());
    assert_eq!(first.is_ok(), repeat.is_ok(), "{first:?} {repeat:?}");
    assert_eq!(first.is_ok(), t.status("ORD-1").await == OrderStatus::DriverAssigned);
}

/// The first accept is decided in time, but its process stalls before it writes, and the repeat is refused. When the
/// process continues, the first accept is refused too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_accept_is_refused_like_its_repeat() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let before = t.snapshot("ORD-1").await;
    let offer = t.live_offer("ORD-1").await;
    let Decision::Change(in_time) = actions::accept_offer(&before, &offer.driver_id, offer.id) else {
        panic!("{before:?}")
    };
    t.advance(secs(3600)).await;
    for _ in 0..2 {
        let refused = t.accept("ORD-1", &offer.driver_id, offer.id).await;
        assert!(matches!(refused, Err(ChangeError::Refused(OrderRefusal::OfferExpired))), "{refused:?}");
    }
    let basis = Basis::Seen(Box::new(SeenOrder::new(before)));
    let written = t.app.orders.change(&id("ORD-1"), basis, decided(*in_time)).await.unwrap();
    assert!(!written.is_written(), "{written:?}");
    assert_eq!(t.snapshot("ORD-1").await.order.driver_id, None);
}
