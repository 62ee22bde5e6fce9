//! A partner that fails in every way. Each attempt makes one booking, calls stop while the partner asks for a pause,
//! and orders keep their lifetime.

use partner_sim::{OutageKind, PartnerKnobs, values::EventRate};

use model::{messages::PARTNER_REFUSES_KEY, order::OrderStatus};
use settings::Config;
use test_support::{
    eventually, millis,
    partnership::{Partnership, partner, patient, silent},
    secs,
};

/// Returns knobs with which every booking finds a driver who stays, and no callback is sent.
fn mute() -> PartnerKnobs {
    PartnerKnobs {
        driver_rate: EventRate::ALWAYS,
        driver_cancel_rate: EventRate::NEVER,
        job_id_callback_rate: EventRate::NEVER,
        callback_rate: EventRate::NEVER,
        ..PartnerKnobs::default()
    }
}

fn rate(rate: f64) -> EventRate {
    rate.try_into().unwrap()
}

/// Polls every 50 to 200 ms, and never opens the breaker.
fn insist(config: &mut Config) {
    let partner = partner(config);
    (partner.poll.first, partner.poll.initial, partner.poll.max) = (millis(100), millis(50), millis(200));
    partner.poll.follow = millis(200);
    (partner.timeout, partner.breaker.failures) = (secs(2), 1_000_000);
}

/// Asserts that this number of orders completes, each with one booking.
async fn assert_all_arrive(p: &Partnership, orders: usize) {
    let _work = p.work();
    for n in 0..orders {
        p.taxi(&format!("ORD-{n}"), "PAID").await;
    }
    eventually("all have arrived", || async {
        p.count("SELECT count(*) FROM orders WHERE status = 'COMPLETED'").await == i64::try_from(orders).unwrap()
    })
    .await;
    assert_eq!(p.sim.read_report().counters.bookings, orders as u64, "one booking for each");
    p.assert_at_rest().await;
}

#[tokio::test]
async fn errors_resets_and_lost_answers_lead_to_no_second_booking() {
    let knobs = PartnerKnobs {
        error_500_rate: rate(0.15),
        error_503_rate: rate(0.1),
        reset_rate: rate(0.15),
        lost_answer_rate: rate(0.3),
        ..mute()
    };
    let p = Partnership::on_real_time(1_000.0, knobs, insist).await;
    assert_all_arrive(&p, 20).await;
    let counters = p.sim.read_report().counters;
    assert!(counters.lost_answers > 0 && counters.errors_500 > 0 && counters.resets > 0, "{counters:?}");
    assert!(counters.bookings_repeated > 0, "{counters:?}");
}

#[tokio::test]
async fn a_partner_that_hangs_is_asked_again() {
    let knobs = PartnerKnobs { hang_rate: rate(0.3), hang_duration: secs(30), ..mute() };
    let p = Partnership::on_real_time(1_000.0, knobs, |config| {
        insist(config);
        partner(config).timeout = millis(300);
    })
    .await;
    assert_all_arrive(&p, 10).await;
    assert!(p.sim.read_report().counters.hangs > 0);
}

#[tokio::test]
async fn a_partner_that_wants_a_pause_gets_it() {
    let mut p = Partnership::start(silent()).await;
    let booking_id = p.booked("ORD-1", "PAID").await;
    assert!(p.sim.take_step(&booking_id));
    // From here on the partner answers 429 to nearly every request.
    p.sim
        .change_knobs(|knobs| {
            (knobs.rate_limit, knobs.rate_burst, knobs.retry_after) = (Some(0.0001), Some(1.0), secs(25));
        })
        .unwrap();
    p.run_for(secs(10)).await;
    let requests = p.sim.read_report().counters.requests;
    assert_eq!(p.sim.read_report().counters.rate_limited, 1);
    p.taxi("ORD-2", "PAID").await;
    p.run_for(secs(19)).await;
    assert_eq!(p.sim.read_report().counters.requests, requests, "neither poll nor booking");

    p.sim.change_knobs(|knobs| (knobs.rate_limit, knobs.rate_burst) = (None, None)).unwrap();
    p.restart();
    p.run_for(secs(60)).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::Assigned);
    p.booking_id("ORD-2", 1).await;
    assert_eq!(p.count("SELECT count(*) FROM outbox WHERE kind = 'PARTNER_REFUSES_KEY'").await, 0);
    p.assert_sound().await;
}

#[tokio::test]
async fn a_refused_key_is_told_once_and_cancels_no_order() {
    let mut p = Partnership::start(patient()).await;
    for order in ["ORD-1", "ORD-2", "ORD-3"] {
        p.booked(order, "PAID").await;
    }
    p.sim.change_knobs(|knobs| knobs.reject_keys = true).unwrap();
    p.taxi("ORD-4", "PAID").await;
    p.run_for(secs(600)).await;
    for order in ["ORD-1", "ORD-2", "ORD-3", "ORD-4"] {
        assert_eq!(p.status(order).await, OrderStatus::PendingJobId);
    }
    let alerts = format!("SELECT count(*) FROM outbox WHERE kind = '{PARTNER_REFUSES_KEY}'");
    assert_eq!(p.count(&alerts).await, 1);
    let breaker = p.app.partners.registry.get(&"bbd".into()).unwrap().breaker_state(&p.app.core.store).await.unwrap();
    assert!(breaker.opens > 0 && breaker.why.contains("refuses our key"), "{breaker:?}");

    p.sim.change_knobs(|knobs| knobs.reject_keys = false).unwrap();
    p.restart();
    p.run_for(secs(100)).await;
    let booking_id = p.booking_id("ORD-4", 1).await;
    p.sim_steps(&booking_id, "ORD-4", OrderStatus::Assigned).await;

    // The partner refuses the key until the lifetime ends the orders.
    p.sim.change_knobs(|knobs| knobs.reject_keys = true).unwrap();
    p.restart();
    p.run_for(secs(1099)).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::PendingJobId);
    p.run_for(secs(2)).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    assert_eq!(p.count(&alerts).await, 1, "once an hour");
    p.assert_sound().await;
}

#[tokio::test]
async fn partner_outage_starts_no_bookings() {
    let mut p = Partnership::with(silent(), |config| partner(config).breaker.failures = 3).await;
    let unavailable = OutageKind::Unavailable;
    p.sim.change_knobs(|knobs| (knobs.down, knobs.outage_kind) = (true, unavailable)).unwrap();
    for n in 0..12 {
        p.taxi(&format!("ORD-{n}"), "UNPAID").await;
    }
    p.run_for(secs(200)).await;
    let requests = p.sim.read_report().counters.unavailable;
    assert!(requests < 24, "{requests} requests to a partner that is away");
    let begun = p.count("SELECT count(*) FROM bookings").await;
    assert!(begun < 12, "{begun} bookings begun");

    p.sim.change_knobs(|knobs| knobs.down = false).unwrap();
    p.restart();
    p.run_for(secs(100)).await;
    assert_eq!(p.count("SELECT count(*) FROM bookings WHERE state = 'booked'").await, 12);
    assert_eq!(p.count("SELECT count(*) FROM orders WHERE attempt_no = 1").await, 12);
    p.assert_sound().await;
}
