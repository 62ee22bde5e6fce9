//! Errors, cut connections, limits and outages occur exactly as the knobs specify.

use std::collections::BTreeMap;

use super::*;

#[tokio::test]
async fn errors_have_no_effect_and_end_when_told() {
    for (knob, status) in [("error_500_rate", 500), ("error_503_rate", 503)] {
        let partner = start(1.0, smooth()).await;
        partner.turn(json!({ knob: 1.0 })).await;
        assert_eq!(partner.book("ORD-1:1").await.status, status);
        assert_eq!(partner.sim.read_report().counters.bookings, 0);
        partner.turn(json!({ knob: 0.0 })).await;
        let booking = partner.booked("ORD-1:1").await;
        partner.turn(json!({ knob: 1.0 })).await;
        assert_eq!(partner.poll(&booking).await.status, status);
        assert_eq!(partner.cancel(&booking).await.status, status);
        assert_eq!(partner.sim.read_report().open, [booking]);
    }
}

/// Returns the statuses of each booking request, by reference. Requests go round by round or one reference after
/// another.
async fn luck(in_rounds: bool) -> BTreeMap<String, Vec<u16>> {
    let partner = start(1.0, PartnerKnobs { error_500_rate: rate(0.3), error_503_rate: rate(0.3), ..smooth() }).await;
    let mut statuses: BTreeMap<String, Vec<u16>> = BTreeMap::new();
    for n in 0..40 {
        let reference = if in_rounds { format!("ORD-{}:1", n % 10) } else { format!("ORD-{}:1", n / 4) };
        let status = partner.book(&reference).await.status;
        statuses.entry(reference).or_default().push(status);
    }
    statuses
}

#[tokio::test]
async fn request_fate_depends_on_booking_and_number() {
    let luck = tokio::join!(luck(true), luck(false));
    assert_eq!(luck.0, luck.1);
    let all: Vec<_> = luck.0.into_values().flatten().collect();
    assert!([200, 201, 500, 503].iter().all(|status| all.contains(status)), "{all:?}");
}

#[tokio::test]
async fn a_reset_request_had_no_effect() {
    let partner = start(1.0, PartnerKnobs { reset_rate: EventRate::ALWAYS, ..smooth() }).await;
    let error = partner.try_book("ORD-1:1").await.unwrap_err();
    assert!(!error.is_timeout() && !error.is_connect(), "{error:?}");
    assert_eq!(partner.sim.read_report().counters.bookings, 0);
}

#[tokio::test]
async fn a_lost_answer_is_found_by_asking_again() {
    let partner = start(1.0, PartnerKnobs { lost_answer_rate: EventRate::ALWAYS, ..smooth() }).await;
    partner.try_book("ORD-1:1").await.unwrap_err();
    let [lost] = &partner.sim.read_report().open[..] else { panic!("no booking") };
    // The knob affects only bookings; polls are answered.
    assert_eq!(partner.poll(lost).await.status, 200);
    partner.turn(json!({ "lost_answer_rate": 0.0 })).await;
    let again = partner.book("ORD-1:1").await;
    assert_eq!((again.status, &again.booking_id()), (200, lost));
}

#[tokio::test]
async fn hanging_request_is_cut_and_forgotten() {
    let partner = start(1000.0, PartnerKnobs { hang_rate: EventRate::ALWAYS, ..smooth() }).await;
    let impatient = Partner { client: client(secs(3)), ..partner };
    let book = async |reference| impatient.try_book(reference).await.unwrap_err().is_timeout();
    assert_eq!(tokio::join!(book("ORD-1:1"), book("ORD-2:1"), book("ORD-3:1")), (true, true, true));
    assert_eq!(impatient.sim.read_report().counters.hangs, 3);
    eventually("requests given up are gone", || async { impatient.sim.read_report().running == 0 }).await;

    // The hang lasts real time, regardless of the speed.
    let patient = Partner { client: client(secs(20)), ..impatient };
    patient.turn(json!({ "hang_duration": "100ms" })).await;
    assert!(!patient.try_book("ORD-4:1").await.unwrap_err().is_timeout());
    assert_eq!(patient.sim.read_report().counters.bookings, 0);
}

#[tokio::test]
async fn above_the_limit_the_answer_is_429_with_retry_after() {
    let limited =
        PartnerKnobs { rate_limit: Some(0.001), rate_burst: Some(5.0), retry_after: millis(1500), ..smooth() };
    let partner = start(1.0, limited.clone()).await;
    for n in 0..5 {
        partner.booked(&format!("ORD-{n}:1")).await;
    }
    let refused = partner.book("ORD-5:1").await;
    assert_eq!((refused.error(), refused.retry_after.as_deref()), ((429, "RATE_LIMITED"), Some("2")));
    let counters = partner.sim.read_report().counters;
    assert_eq!((counters.bookings, counters.rate_limited, counters.requests), (5, 1, 6));
    // A request with a wrong key does not use up the rate limit.
    let stranger = partner.send(Method::GET, "/job-status?booking_id=x", "bad", "", &Value::Null).await.unwrap();
    assert_eq!(stranger.status, 401);

    let hasty = start(100.0, limited).await;
    for n in 0..5 {
        hasty.booked(&format!("ORD-{n}:1")).await;
    }
    assert_eq!(hasty.book("ORD-5:1").await.retry_after.as_deref(), Some("0.015"));
}

#[tokio::test]
async fn in_an_outage_connections_are_refused_and_running_ones_cut() {
    let partner = start(1.0, smooth()).await;
    let booking = partner.booked("ORD-1:1").await;
    partner.turn(json!({ "hang_rate": 1.0 })).await;
    let outage = async {
        eventually("a request hangs", || async { partner.sim.read_report().counters.hangs == 1 }).await;
        partner.turn(json!({ "down": true, "hang_rate": 0.0 })).await;
    };
    let (cut, ()) = tokio::join!(partner.try_poll(&booking), outage);
    assert!(!cut.unwrap_err().is_timeout());
    eventually("connections are refused", || async {
        partner.try_poll(&booking).await.is_err_and(|error| error.is_connect())
    })
    .await;

    partner.turn(json!({ "down": false })).await;
    eventually("it is back at its old address", || async { partner.try_poll(&booking).await.is_ok() }).await;
    // Bookings survive an outage.
    assert_eq!(partner.poll(&booking).await.status, 200);
}

#[tokio::test]
async fn an_outage_may_also_answer_503() {
    let partner = start(1.0, smooth()).await;
    partner.turn(json!({ "down": true, "outage_kind": "unavailable" })).await;
    assert_eq!(partner.book("ORD-1:1").await.error(), (503, "UNAVAILABLE"));
    partner.turn(json!({ "down": false })).await;
    partner.booked("ORD-1:1").await;
    assert_eq!(partner.sim.read_report().counters.unavailable, 1);
}

#[tokio::test]
async fn an_outage_begins_and_ends_by_the_clock() {
    let knobs = PartnerKnobs { outages: vec!["0s+3h".parse().unwrap()], ..smooth() };
    let partner = start(1000.0, knobs).await;
    assert!(partner.try_book("ORD-1:1").await.unwrap_err().is_connect());
    eventually("the outage ends", || async { partner.try_book("ORD-1:1").await.is_ok() }).await;
}

#[tokio::test]
async fn keys_may_fail_for_a_while() {
    let knobs = PartnerKnobs { auth_failures: vec!["0s+3h".parse().unwrap()], ..smooth() };
    let partner = start(1000.0, knobs).await;
    assert_eq!(partner.book("ORD-1:1").await.error(), (401, "UNAUTHORIZED"));
    eventually("keys are good again", || async { partner.book("ORD-1:1").await.status != 401 }).await;
    partner.turn(json!({ "reject_keys": true })).await;
    assert_eq!(partner.book("ORD-2:1").await.status, 401);
}

#[tokio::test]
async fn latency_lets_requests_overlap() {
    let partner = start(1.0, PartnerKnobs { latency: "3s".parse().unwrap(), ..smooth() }).await;
    let begun = std::time::Instant::now();
    tokio::join!(partner.book("ORD-1:1"), partner.book("ORD-2:1"), partner.book("ORD-3:1"));
    assert!(begun.elapsed() >= secs(3));
    let counters = partner.sim.read_report().counters;
    assert_eq!(counters.max_concurrent, 3);
    // On a busy machine the requests may arrive in different seconds.
    assert!((1..=3).contains(&counters.max_in_a_second), "{counters:?}");
}

#[tokio::test]
async fn knobs_are_checked_before_any_is_turned() {
    let partner = start(1.0, smooth()).await;
    for bad in [json!({ "dwon": true }), json!({ "hang_rate": 2 }), json!({ "hang_rate": 1, "reset_rate": 1 })] {
        assert_eq!(partner.control(Method::POST, "/knobs", &bad).await.error(), (422, "INVALID"), "{bad}");
    }
    let knobs = partner.control(Method::GET, "/knobs", &Value::Null).await.body;
    assert_eq!(serde_json::from_value::<PartnerKnobs>(knobs).unwrap(), smooth());
    assert!(partner.sim.change_knobs(|knobs| knobs.rate_limit = Some(-1.0)).is_err());
    partner.booked("ORD-1:1").await;
}
