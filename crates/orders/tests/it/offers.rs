//! Choice of drivers, number of concurrent offers, and offers that cannot be answered.

use axum::http::StatusCode;
use sqlx::{Postgres, Transaction};

use desk::explain::gather;
use model::{
    decide::{OrderRefusal, actions},
    messages::{ASSIGNED, MANUAL_REFUND_REQUIRED, UNASSIGNED},
    order::{
        OfferState::{self, Accepted, Declined, Offered, Superseded, Withdrawn},
        OrderStatus, Snapshot,
    },
};
use orders::{change::ChangeError, changed::Changed};
use settings::Config;
use test_support::{LogLines, Receiver, TestApp, by, eventually, id, ids, lasting_transaction, secs, update_for_offer};

/// Asks three drivers at once.
fn broadcast(config: &mut Config) {
    config.dispatch.ask_at_once = 3;
}

const FOUR: [(&str, f64); 4] = [("D1", 100.0), ("D2", 200.0), ("D3", 300.0), ("D4", 400.0)];

async fn states(t: &TestApp, order: &str) -> Vec<OfferState> {
    let mut offers = t.offers(order).await;
    offers.sort_by(|a, b| a.0.cmp(&b.0));
    offers.into_iter().map(|(_, state)| state).collect()
}

/// Accepts this driver's live offer.
async fn accept(t: &TestApp, order: &str, driver: &str) -> Result<Changed, ChangeError> {
    let offer = t.live_offers(order).await.into_iter().find(|o| o.driver_id == driver).expect("is being asked");
    t.accept(order, driver, offer.id).await
}

async fn decline(t: &TestApp, order: &str, driver: &str) {
    let offer = t.live_offers(order).await.into_iter().find(|o| o.driver_id == driver).expect("is being asked");
    t.act(order, |s| actions::decline_offer(s, &driver.into(), offer.id, Some("too far".to_owned()))).await.unwrap();
}

#[tokio::test]
async fn broadcast_assigns_the_first_driver_to_accept() {
    let t = TestApp::with(broadcast).await;
    t.drivers(&FOUR).await;
    t.order("ORD-1").await;
    t.run_due().await;
    assert_eq!(states(&t, "ORD-1").await, [Offered; 3]);
    let ranks = t.texts("SELECT driver_id || ' ' || rank || ' ' || score FROM offers ORDER BY rank").await;
    assert_eq!(ranks, ["D1 1 100", "D2 2 200", "D3 3 300"]);

    let late = t.live_offers("ORD-1").await.into_iter().find(|o| o.driver_id == "D3").unwrap();
    accept(&t, "ORD-1", "D2").await.unwrap();
    assert_eq!(states(&t, "ORD-1").await, [Superseded, Accepted, Superseded]);
    let answer = t.accept("ORD-1", "D3", late.id).await;
    assert!(matches!(answer, Err(ChangeError::Refused(OrderRefusal::AlreadyAssigned))), "{answer:?}");
    t.run_due().await;
    t.assert_sound().await;
}

#[tokio::test]
async fn attempt_lasts_until_the_last_decline() {
    let t = TestApp::with(broadcast).await;
    t.drivers(&FOUR).await;
    t.order("ORD-1").await;
    t.run_due().await;
    decline(&t, "ORD-1", "D1").await;
    decline(&t, "ORD-1", "D3").await;
    assert_eq!(ids(&t.run_due().await), Vec::<&str>::new());
    assert_eq!(states(&t, "ORD-1").await, [Declined, Offered, Declined]);
    decline(&t, "ORD-1", "D2").await;
    assert_eq!(ids(&t.run_due().await)[0], "timeout:ORD-1:1");
    assert_eq!(t.asked("ORD-1").await, "D4");
    assert_eq!(t.texts("SELECT DISTINCT reason FROM offers WHERE state = 'declined'").await, ["too far"]);
    let history =
        ["ORDER_CREATED", "ATTEMPT_STARTED", "DRIVER_DECLINED", "DRIVER_DECLINED", "OFFER_DECLINED", "ATTEMPT_STARTED"];
    assert_eq!(t.reasons("ORD-1").await, history);
    t.assert_sound().await;
}

#[tokio::test]
async fn of_those_who_said_nothing_all_lapse_together() {
    let t = TestApp::with(broadcast).await;
    t.drivers(&FOUR).await;
    t.order("ORD-1").await;
    t.run_due().await;
    decline(&t, "ORD-1", "D2").await;
    t.advance(secs(120)).await;
    t.run_due().await;
    let expected = [OfferState::Expired, Declined, OfferState::Expired, Offered];
    assert_eq!(states(&t, "ORD-1").await, expected);
    t.assert_sound().await;
}

#[tokio::test]
async fn driver_offers_are_limited_and_withdrawn_on_accept() {
    let t = TestApp::with(|config| config.dispatch.offers_per_driver = 2).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    for order in ["ORD-1", "ORD-2", "ORD-3", "ORD-4", "ORD-5"] {
        t.order(order).await;
        t.run_due().await;
    }
    // Each additional offer adds 500 m to a driver's distance in the ranking.
    let held = "SELECT driver_id || ' ' || order_id FROM offers WHERE state = 'offered' ORDER BY 1";
    assert_eq!(t.texts(held).await, ["D1 ORD-1", "D1 ORD-3", "D2 ORD-2", "D2 ORD-4"]);

    accept(&t, "ORD-3", "D1").await.unwrap();
    assert_eq!(states(&t, "ORD-1").await, [Withdrawn]);
    assert_eq!(t.reasons("ORD-1").await.last().unwrap(), "OFFER_WITHDRAWN");
    assert_eq!(ids(&t.run_due().await)[0], "timeout:ORD-1:1");
    t.assert_sound().await;
}

#[tokio::test]
async fn two_broadcasts_at_the_same_moment_share_the_drivers() {
    let t = TestApp::with(broadcast).await;
    t.drivers(&FOUR).await;
    t.order("ORD-1").await;
    t.order("ORD-2").await;
    let jobs = t.take().await;
    let outcomes = tokio::join!(t.perform(&jobs[0]), t.perform(&jobs[1]));
    t.settle(&jobs[0], outcomes.0).await;
    t.settle(&jobs[1], outcomes.1).await;
    let live = t.count("SELECT count(*) FROM offers WHERE state = 'offered'").await;
    let drivers = t.count("SELECT count(DISTINCT driver_id) FROM offers WHERE state = 'offered'").await;
    assert_eq!((live, drivers), (4, 4));
    t.assert_sound().await;
}

#[tokio::test]
async fn concurrent_orders_get_different_drivers() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    t.order("ORD-2").await;
    let jobs = t.take().await;
    let mut other = lasting_transaction(&t.postgres).await;
    let rankings = "INSERT INTO rankings (order_id, attempt_no, at) SELECT id, 1, dispatchq_now() FROM orders";
    sqlx::query(rankings).execute(&mut *other).await.unwrap();
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '-- write change%'";
    let release = async {
        // Both changes have locked their drivers and write their rankings. Neither waits for the other.
        eventually("both wait to write their rankings", || async { t.count(waiting).await == 2 }).await;
        other.rollback().await.unwrap();
    };
    let outcomes = tokio::join!(t.perform(&jobs[0]), t.perform(&jobs[1]), release);
    t.settle(&jobs[0], outcomes.0).await;
    t.settle(&jobs[1], outcomes.1).await;
    let asked = t.texts("SELECT driver_id FROM offers WHERE state = 'offered' ORDER BY 1").await;
    assert_eq!(asked, ["D1", "D2"]);
    t.assert_sound().await;
}

/// Takes the offer locks of these drivers in another session, until the returned transaction ends.
async fn make_offers_elsewhere(t: &TestApp, drivers: &[&str]) -> Transaction<'static, Postgres> {
    let mut other = lasting_transaction(&t.postgres).await;
    sqlx::query("SELECT pg_advisory_xact_lock($1, hashtext(d)) FROM unnest($2::text[]) d")
        .bind(0x6f66_6672)
        .bind(drivers)
        .execute(&mut *other)
        .await
        .unwrap();
    other
}

/// The change stays in the statement that many orders share.
#[tokio::test]
async fn order_skips_taken_drivers_within_shared_statement() {
    let lines = LogLines::default();
    tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_writer(lines.clone()).init();
    let t = TestApp::start().await;
    t.drivers(&FOUR).await;
    t.order("ORD-1").await;
    let other = make_offers_elsewhere(&t, &["D1", "D2"]).await;
    t.run_due().await;
    other.rollback().await.unwrap();
    let asked = t.texts("SELECT concat_ws(' ', driver_id, rank, slot) FROM offers").await;
    assert_eq!(asked, ["D3 3 1"]);
    let tried = |statement: &str| lines.with(statement).len();
    assert_eq!((tried("-- write change"), tried("-- insert offers")), (3, 0));
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED", "ATTEMPT_STARTED"]);
    t.assert_sound().await;
}

#[tokio::test]
async fn broadcast_replaces_a_taken_driver() {
    let t = TestApp::with(broadcast).await;
    t.drivers(&FOUR).await;
    t.order("ORD-1").await;
    let other = make_offers_elsewhere(&t, &["D2"]).await;
    t.run_due().await;
    other.rollback().await.unwrap();
    let asked = t.texts("SELECT concat_ws(' ', driver_id, rank) FROM offers ORDER BY rank").await;
    assert_eq!(asked, ["D1 1", "D3 3", "D4 4"]);
    t.assert_sound().await;
}

/// The offer's deadline is already running, so the search must not use one batch per driver.
#[tokio::test]
async fn order_skips_taken_drivers_in_few_batches() {
    let lines = LogLines::default();
    tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_writer(lines.clone()).init();
    let t = TestApp::start().await;
    let ids: Vec<String> = (1..=12).map(|n| format!("D{n}")).collect();
    let drivers: Vec<_> = (1..).zip(&ids).map(|(n, driver)| (driver.as_str(), 100.0 * f64::from(n))).collect();
    t.drivers(&drivers).await;
    t.order("ORD-1").await;
    let taken: Vec<_> = ids[..11].iter().map(String::as_str).collect();
    let other = make_offers_elsewhere(&t, &taken).await;
    t.run_due().await;
    other.rollback().await.unwrap();
    assert_eq!(t.texts("SELECT concat_ws(' ', driver_id, rank) FROM offers").await, ["D12 12"]);
    let batches = lines.with("-- write change").len();
    assert!((2..11).contains(&batches), "{batches} batches");
    t.assert_sound().await;
}

/// Nothing is written until a driver can be asked.
#[tokio::test]
async fn order_with_all_drivers_taken_decides_again() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    let other = make_offers_elsewhere(&t, &["D1", "D2"]).await;
    t.run_due().await;
    assert_eq!(t.count("SELECT count(*) FROM offers").await, 0);
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED"]);
    other.rollback().await.unwrap();
    t.run_for(secs(30)).await;
    assert_eq!(t.asked("ORD-1").await, "D1");
    t.assert_sound().await;
}

/// Another program made the offer without the lock. The unique index limits the driver's slots.
#[tokio::test]
async fn driver_slot_conflict_asks_the_next_driver() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    t.order("ORD-1").await;
    t.order("ORD-2").await;
    let jobs = t.take().await;
    let first = jobs.iter().find(|job| job.delivery.id.as_str() == "dispatch:ORD-1:1").unwrap();
    let mut other = lasting_transaction(&t.postgres).await;
    sqlx::query(
        "INSERT INTO offers (id, order_id, attempt_no, round, driver_id, offered_at, expires_at)
         VALUES (gen_random_uuid(), 'ORD-2', 1, 1, 'D1', dispatchq_now(), dispatchq_now())",
    )
    .execute(&mut *other)
    .await
    .unwrap();
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '-- write change%'";
    let taking = async {
        eventually("the order waits for the slot", || async { t.count(waiting).await == 1 }).await;
        other.commit().await.unwrap();
    };
    let (outcome, ()) = tokio::join!(t.perform(first), taking);
    t.settle(first, outcome).await;
    assert_eq!(t.asked("ORD-1").await, "D2");
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED", "ATTEMPT_STARTED"]);
}

#[tokio::test]
async fn who_let_an_offer_lapse_cools_down() {
    let t = TestApp::with(|config| config.dispatch.cool_down = secs(60)).await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.advance(secs(120)).await;
    t.run_due().await;
    t.order("ORD-2").await;
    t.run_for(secs(59)).await;
    assert_eq!(t.offers("ORD-2").await, []);
    t.run_for(secs(16)).await;
    assert_eq!(t.count("SELECT count(*) FROM offers WHERE state = 'offered'").await, 1);
    t.assert_sound().await;
}

#[tokio::test]
async fn an_offer_its_receiver_does_not_want_ends_at_once() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| receiver.configure(config)).await;
    t.drivers(&FOUR).await;
    receiver.fail(StatusCode::GONE, 1);
    t.order("ORD-1").await;
    t.run_due().await;
    assert_eq!(states(&t, "ORD-1").await, [Withdrawn, Offered]);
    let history = ["ORDER_CREATED", "ATTEMPT_STARTED", "OFFER_WITHDRAWN", "ATTEMPT_STARTED"];
    assert_eq!(t.reasons("ORD-1").await, history);
    let why = t.texts("SELECT reason FROM offers WHERE state = 'withdrawn'").await.remove(0);
    assert_eq!(why, "D1: could not be reached over hook: the receiver answered 410");
    t.assert_sound().await;
}

#[tokio::test]
async fn an_offer_stays_while_another_channel_may_bring_it() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| {
        receiver.configure(config);
        config.notifications.driver.push("log".to_owned());
    })
    .await;
    t.drivers(&FOUR).await;
    receiver.fail(StatusCode::GONE, 1);
    t.order("ORD-1").await;
    t.run_due().await;
    assert_eq!(states(&t, "ORD-1").await, [Offered]);
    t.assert_sound().await;
}

#[tokio::test]
async fn a_driver_who_cancels_is_replaced_and_not_asked_again() {
    let t = TestApp::start().await;
    t.drivers(&FOUR[..2]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    let cancel = || t.act("ORD-1", |s| actions::cancel_by_driver(s, &"D1".into(), Some("flat tyre".to_owned())));
    assert!(cancel().await.unwrap().is_written());
    assert!(!cancel().await.unwrap().is_written(), "twice is once");
    assert_eq!(t.status("ORD-1").await, OrderStatus::Dispatching);
    t.run_due().await;
    // The first driver's lock does not block the second driver.
    assert_eq!(t.accept_offer("ORD-1").await, "D2");
    t.act("ORD-1", |s| actions::cancel_by_driver(s, &"D2".into(), None)).await.unwrap();
    t.run_for(secs(1801)).await;
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystem);
    assert_eq!(t.offers("ORD-1").await.len(), 2);
    t.assert_sound().await;
}

#[tokio::test]
async fn driver_cancel_past_lifetime_ends_paid_order() {
    let t = TestApp::start().await;
    t.drivers(&FOUR).await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    t.run_for(secs(1801)).await;
    t.act("ORD-1", |s| actions::cancel_by_driver(s, &"D1".into(), None)).await.unwrap();
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledByDriver);
    assert_eq!(t.messages_of("ORD-1", MANUAL_REFUND_REQUIRED).await, 1);
    t.run_due().await;
    t.assert_sound().await;
}

#[tokio::test]
async fn after_pick_up_a_driver_cannot_cancel_and_nobody_releases() {
    let t = TestApp::start().await;
    t.drivers(&FOUR).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    t.act("ORD-1", |s| actions::record_pickup(s, &"D1".into())).await.unwrap();
    for answer in [
        t.act("ORD-1", |s| actions::cancel_by_driver(s, &"D1".into(), None)).await,
        t.act("ORD-1", |s| actions::release_driver(s, &by("operator:test"), None)).await,
    ] {
        assert!(matches!(answer, Err(ChangeError::Refused(OrderRefusal::WrongState { .. }))), "{answer:?}");
    }
    let foreign = t.act("ORD-1", |s| actions::cancel_by_driver(s, &"D2".into(), None)).await;
    assert!(matches!(foreign, Err(ChangeError::Refused(OrderRefusal::NotYourOrder))), "{foreign:?}");
}

#[tokio::test]
async fn taken_back_order_notifies_everyone_concerned() {
    let t = TestApp::start().await;
    t.drivers(&FOUR[..2]).await;
    t.order("ORD-1").await;
    t.act("ORD-1", |s| actions::assign_driver(s, &by("operator:test"), &"D1".into())).await.unwrap();
    assert_eq!(t.messages_of("ORD-1", ASSIGNED).await, 1);
    t.act("ORD-1", |s| actions::release_driver(s, &by("operator:test"), Some("phone is off".to_owned())))
        .await
        .unwrap();
    assert_eq!(t.messages_of("ORD-1", UNASSIGNED).await, 1);
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "D2");
    t.accept_offer("ORD-1").await;
    t.cancel("ORD-1").await.unwrap();
    assert_eq!(t.messages_of("ORD-1", UNASSIGNED).await, 2);
    t.run_due().await;
    t.assert_sound().await;
}

#[tokio::test]
async fn a_ranking_says_why_this_driver_and_not_that_one() {
    let t = TestApp::with(|config| config.dispatch.idle_minute_m = 10.0).await;
    t.drivers(&[("near", 100.0), ("idle", 400.0), ("busy", 50.0), ("declined", 60.0)]).await;
    t.sql("UPDATE drivers SET idle_since = dispatchq_now() - interval '40 minutes' WHERE id = 'idle'").await;
    t.order("ORD-0").await;
    t.act("ORD-0", |s| actions::assign_driver(s, &by("operator:test"), &"busy".into())).await.unwrap();
    t.order("ORD-1").await;
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "idle");
    let explained = gather::explain_order(&t.app.desk, &id("ORD-1")).await.unwrap().unwrap();
    let ranking = explained.ranking.unwrap();
    let ranked: Vec<_> = ranking.candidates.ranked.iter().map(|r| (r.driver_id.as_str(), r.score)).collect();
    assert_eq!(ranked, [("idle", 0.0), ("declined", 60.0), ("near", 100.0)]);
    let excluded: Vec<_> =
        ranking.candidates.excluded.iter().map(|x| (x.driver_id.as_str(), x.why.reason_text())).collect();
    assert_eq!(excluded, [("busy", "has an active order")]);
}

#[tokio::test]
async fn a_search_that_finds_nobody_says_why_too() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.decline_offer("ORD-1").await;
    t.run_due().await;
    let explained = gather::explain_order(&t.app.desk, &id("ORD-1")).await.unwrap().unwrap();
    let ranking = explained.ranking.unwrap();
    assert_eq!((ranking.attempt_no, ranking.candidates.ranked.len()), (2, 0));
    assert_eq!(ranking.candidates.excluded[0].why.reason_text(), "declined this order");
}

#[tokio::test]
async fn free_driver_is_found_behind_busy_ones() {
    let t = TestApp::with(|config| config.dispatch.candidates = 3).await;
    let crowd: Vec<(String, f64)> = (0..10).map(|n| (format!("B{n}"), f64::from(n))).collect();
    t.drivers(&crowd.iter().map(|(id, m)| (id.as_str(), *m)).collect::<Vec<_>>()).await;
    t.drivers(&[("free", 3000.0)]).await;
    for n in 0..10 {
        let order = format!("BUSY-{n}");
        t.order(&order).await;
        t.act(&order, |s| actions::assign_driver(s, &by("operator:test"), &format!("B{n}").into())).await.unwrap();
    }
    t.order("ORD-1").await;
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "free");
    t.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_concurrent_declines_are_all_recorded() {
    let t = TestApp::with(|config| {
        config.dispatch.ask_at_once = 30;
        config.database.max_connections = 40;
    })
    .await;
    let drivers: Vec<(String, f64)> = (0..30).map(|n| (format!("D{n}"), 100.0)).collect();
    t.drivers(&drivers.iter().map(|(id, m)| (id.as_str(), *m)).collect::<Vec<_>>()).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let mut answers = tokio::task::JoinSet::new();
    for (n, offer) in t.live_offers("ORD-1").await.into_iter().enumerate() {
        let app = t.app.clone();
        answers.spawn(async move {
            let decide = |s: &Snapshot| match n % 2 {
                0 => actions::decline_offer(s, &offer.driver_id, offer.id, None),
                _ => actions::withdraw_offer(s, offer.id, "test"),
            };
            update_for_offer(&app.orders, &id("ORD-1"), offer.id, decide).await.map(drop)
        });
    }
    let failed: Vec<_> = answers.join_all().await.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(t.live_offers("ORD-1").await.len(), 0);
    assert_eq!(ids(&t.run_due().await)[0], "timeout:ORD-1:1");
    t.assert_sound().await;
}

#[tokio::test]
async fn offers_nobody_can_deliver_end_together() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| {
        receiver.configure(config);
        broadcast(config);
    })
    .await;
    t.drivers(&FOUR).await;
    receiver.fail(StatusCode::GONE, 3);
    t.order("ORD-1").await;
    let jobs = t.take().await;
    for leased in &jobs {
        let outcome = t.perform(leased).await;
        t.settle(leased, outcome).await;
    }
    // The three messages of the order fail concurrently.
    let jobs = t.take().await;
    assert_eq!(jobs.len(), 3, "{jobs:?}");
    let outcomes = tokio::join!(t.perform(&jobs[0]), t.perform(&jobs[1]), t.perform(&jobs[2]));
    for (leased, outcome) in jobs.iter().zip([outcomes.0, outcomes.1, outcomes.2]) {
        t.settle(leased, outcome).await;
    }
    t.run_due().await;
    assert_eq!(states(&t, "ORD-1").await, [Withdrawn, Withdrawn, Withdrawn, Offered]);
    t.assert_sound().await;
}

#[tokio::test]
async fn answer_to_old_offer_names_its_state() {
    let t = TestApp::start().await;
    t.drivers(&FOUR).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let first = t.live_offer("ORD-1").await;
    for _ in 0..3 {
        t.run_for(secs(120)).await;
    }
    let accepted = t.accept("ORD-1", "D1", first.id).await;
    assert!(matches!(accepted, Err(ChangeError::Refused(OrderRefusal::OfferExpired))), "{accepted:?}");
    let decide = |s: &Snapshot| actions::decline_offer(s, &"D1".into(), first.id, None);
    let declined = update_for_offer(&t.app.orders, &id("ORD-1"), first.id, decide).await;
    assert!(matches!(declined, Err(ChangeError::Refused(OrderRefusal::OfferExpired))), "{declined:?}");
}
