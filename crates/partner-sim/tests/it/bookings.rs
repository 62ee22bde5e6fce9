//! Booking, polling, cancelling, and identical results for the same seed.

use super::*;

#[tokio::test]
async fn a_key_books_once() {
    let partner = start(1.0, smooth()).await;
    let first = partner.book("ORD-1:1").await;
    let again = partner.book("ORD-1:1").await;
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(first.body, json!({ "booking_id": first.booking_id() }));
    assert_eq!(again.body, first.body);

    let mut other = request("ORD-1:1");
    other["pickup"]["latitude"] = json!(-6.3);
    let refused = partner.send(Method::POST, "/bookings", KEY, "ORD-1:1", &other).await.unwrap();
    assert_eq!(refused.error(), (422, "IDEMPOTENCY_KEY_REUSED"));

    assert_ne!(partner.booked("ORD-1:2").await, first.booking_id());
    let counters = partner.sim.read_report().counters;
    assert_eq!((counters.bookings, counters.bookings_repeated), (2, 1));
}

#[tokio::test]
async fn simultaneous_requests_with_one_key_book_once() {
    let partner = start(1.0, smooth()).await;
    let (a, b, c, d) = tokio::join!(partner.book("O:1"), partner.book("O:1"), partner.book("O:1"), partner.book("O:1"));
    let mut statuses = [&a, &b, &c, &d].map(|answer| answer.status);
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 201]);
    assert!([b, c, d].iter().all(|answer| answer.body == a.body));
}

#[tokio::test]
async fn wrong_requests_are_told_why() {
    let partner = start(1.0, smooth()).await;
    let post = async |key: &str, idempotency_key: &str, body: &Value| {
        partner.send(Method::POST, "/bookings", key, idempotency_key, body).await.unwrap()
    };
    let good = request("O:1");
    for key in ["", "another"] {
        assert_eq!(post(key, "O:1", &good).await.error(), (401, "UNAUTHORIZED"));
    }
    assert_eq!(post(KEY, "", &good).await.error(), (400, "IDEMPOTENCY_KEY_MISSING"));
    assert_eq!(post(KEY, "O:2", &good).await.error(), (422, "INVALID"));
    for (field, value) in [("attempt", json!(0)), ("order_id", json!("")), ("pickup", json!({ "latitude": 91.0 }))] {
        let mut bad = good.clone();
        bad[field] = value;
        assert_eq!(post(KEY, "O:1", &bad).await.error(), (422, "INVALID"), "{field}");
    }
    for booking in ["B-0000000000000000", "B-1", "nonsense"] {
        assert_eq!(partner.poll(booking).await.error(), (404, "BOOKING_NOT_FOUND"));
        assert_eq!(partner.cancel(booking).await.error(), (404, "BOOKING_NOT_FOUND"));
    }
    assert_eq!(partner.send(Method::GET, "/job-status", KEY, "", &Value::Null).await.unwrap().status, 400);
    assert_eq!(partner.send(Method::GET, "/elsewhere", KEY, "", &Value::Null).await.unwrap().status, 404);
    assert_eq!(partner.send(Method::GET, "/bookings", KEY, "", &Value::Null).await.unwrap().status, 405);
    assert_eq!(partner.sim.read_report().counters.bookings, 0);
}

#[tokio::test]
async fn booking_moves_through_all_its_steps() {
    let partner = start(1.0, patient()).await;
    let booking = partner.booked("ORD-1:1").await;
    let fresh = json!({ "booking_id": booking, "job_id": null, "status": "searching", "driver_id": null });
    assert_eq!(partner.poll(&booking).await.body, fresh);

    assert!(partner.sim.take_step(&booking));
    let searching = partner.poll(&booking).await.body;
    assert!(searching["job_id"].as_str().unwrap().starts_with("J-"));
    assert_eq!((&searching["status"], &searching["driver_id"]), (&json!("searching"), &Value::Null));

    assert!(partner.sim.take_step(&booking));
    let assigned = partner.poll(&booking).await.body;
    assert_eq!(assigned["status"], "driver_assigned");
    assert!(assigned["driver_id"].as_str().unwrap().starts_with("D-"));
    assert_eq!(assigned["job_id"], searching["job_id"]);
    for status in ["picked_up", "completed"] {
        assert!(partner.sim.take_step(&booking));
        assert_eq!(partner.poll(&booking).await.body["status"], status);
    }
    assert_eq!(partner.sim.read_report().open_bookings, 0);
}

#[tokio::test]
async fn search_fails_and_drivers_cancel_by_rate() {
    let partner = start(FAST, PartnerKnobs { driver_rate: EventRate::NEVER, ..smooth() }).await;
    let unserved = partner.booked("ORD-1:1").await;
    partner.reaches(&unserved, "no_driver").await;
    partner
        .sim
        .change_knobs(|knobs| *knobs = PartnerKnobs { driver_cancel_rate: EventRate::ALWAYS, ..smooth() })
        .unwrap();
    let deserted = partner.booked("ORD-1:2").await;
    partner.reaches(&deserted, "cancelled").await;
    assert_eq!(partner.sim.read_report().open_bookings, 0);
    // Cancelling a closed booking without a passenger succeeds.
    assert_eq!(partner.cancel(&unserved).await.status, 200);
    assert_eq!(partner.cancel(&deserted).await.status, 200);
}

#[tokio::test]
async fn booking_without_job_id_stays_open() {
    let partner = start(FAST, PartnerKnobs { job_id_rate: EventRate::NEVER, ..smooth() }).await;
    let stuck = partner.booked("ORD-1:1").await;
    partner.turn(json!({ "job_id_rate": 1.0 })).await;
    let other = partner.booked("ORD-2:1").await;
    partner.reaches(&other, "completed").await;
    // The knob was changed after the fate of this booking was decided.
    assert_eq!(partner.poll(&stuck).await.body["job_id"], Value::Null);
    assert_eq!(partner.sim.read_report().open, std::slice::from_ref(&stuck));
    assert_eq!(partner.cancel(&stuck).await.status, 200);
    assert_eq!(partner.sim.read_report().open_bookings, 0);
}

#[tokio::test]
async fn cancelling_repeats_until_a_passenger_is_aboard() {
    let partner = start(1.0, patient()).await;
    let waiting = partner.booked("ORD-1:1").await;
    for _ in 0..2 {
        let cancelled = partner.cancel(&waiting).await;
        assert_eq!((cancelled.status, &cancelled.body["status"]), (200, &json!("cancelled")));
    }
    assert_eq!(partner.poll(&waiting).await.body["status"], "cancelled");

    let aboard = partner.booked("ORD-2:1").await;
    // The three steps are job id, driver and pickup.
    for _ in 0..3 {
        assert!(partner.sim.take_step(&aboard));
    }
    assert_eq!(partner.cancel(&aboard).await.error(), (409, "TRIP_IN_PROGRESS"));
    assert_eq!(partner.poll(&aboard).await.body["status"], "picked_up");
    let counters = partner.sim.read_report().counters;
    assert_eq!((counters.cancels, counters.cancels_too_late), (1, 1));
}

/// Returns the final state of every booking, by reference.
async fn endings(seed: u64, references: &[String]) -> Vec<(String, Value)> {
    let knobs = PartnerKnobs { driver_rate: rate(0.6), driver_cancel_rate: rate(0.3), ..PartnerKnobs::default() };
    let partner = Partner::start(&PartnerSimOptions {
        seed,
        speed: FAST,
        knobs,
        keep_finished: secs(7 * 24 * 3600),
        ..PartnerSimOptions::default()
    })
    .await;
    let mut bookings = Vec::new();
    for reference in references {
        bookings.push((reference.clone(), partner.booked(reference).await));
    }
    eventually("all are over", || async { partner.sim.read_report().open_bookings == 0 }).await;
    let mut endings = Vec::new();
    for (reference, booking) in bookings {
        endings
            .push((reference, partner.control(Method::GET, &format!("/bookings/{booking}"), &Value::Null).await.body));
    }
    endings.sort_by(|a, b| a.0.cmp(&b.0));
    endings
}

#[tokio::test]
async fn the_same_seed_brings_the_same_fate_in_any_order() {
    let references: Vec<_> = (0..30).map(|n| format!("ORD-{n}:1")).collect();
    let reversed: Vec<_> = references.iter().rev().cloned().collect();
    let (forth, back, other) = tokio::join!(endings(1, &references), endings(1, &reversed), endings(2, &references));
    assert_eq!(forth, back);
    assert_ne!(forth, other);
    let statuses: std::collections::BTreeSet<_> = forth.iter().map(|(_, e)| e["status"].as_str().unwrap()).collect();
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), ["cancelled", "completed", "no_driver"]);
}

#[tokio::test]
async fn simulator_forgets_finished_bookings_only() {
    let knobs = PartnerKnobs { job_id_delay: "7days".parse().unwrap(), ..smooth() };
    let options = PartnerSimOptions { speed: 1000.0, keep_finished: secs(8000), knobs, ..PartnerSimOptions::default() };
    let partner = Partner::start(&options).await;
    let (kept, gone) = (partner.booked("ORD-1:1").await, partner.booked("ORD-2:1").await);
    partner.cancel(&gone).await;
    assert_eq!(partner.sim.read_report().known_bookings, 2);
    eventually("one is forgotten", || async { partner.sim.read_report().known_bookings == 1 }).await;
    assert_eq!(partner.poll(&gone).await.status, 404);
    assert_eq!(partner.poll(&kept).await.status, 200);
    assert_eq!(partner.sim.read_report().counters.bookings, 2);
}
