//! One order from its booking to its end, by real workers on real time.

use partner_sim::{PartnerKnobs, values::EventRate};

use model::order::{BookingState, OrderStatus};
use test_support::partnership::Partnership;

/// Speed at which a trip takes seconds.
const FAST: f64 = 1_000.0;

/// Returns knobs with which every booking finds a driver who stays, and every callback is sent.
fn smooth() -> PartnerKnobs {
    PartnerKnobs {
        driver_rate: EventRate::ALWAYS,
        driver_cancel_rate: EventRate::NEVER,
        job_id_callback_rate: EventRate::ALWAYS,
        callback_rate: EventRate::ALWAYS,
        ..PartnerKnobs::default()
    }
}

#[tokio::test]
async fn an_order_goes_from_booking_to_completion_by_callbacks_alone() {
    // The delays are long enough that no callback overtakes another.
    let apart = || "2000s".parse().unwrap();
    let knobs = PartnerKnobs { driver_delay: apart(), pickup_delay: apart(), trip_duration: apart(), ..smooth() };
    let p = Partnership::on_real_time(FAST, knobs, |_| {}).await;
    let _work = p.work();
    p.taxi("ORD-1", "PAID").await;
    p.reaches("ORD-1", OrderStatus::Completed).await;
    let wanted =
        ["ORDER_CREATED", "ATTEMPT_STARTED", "BOOKED", "JOB_ID_VIA_CALLBACK", "DRIVER_FOUND", "PICKED_UP", "COMPLETED"];
    assert_eq!(p.reasons("ORD-1").await, wanted);
    let s = p.snapshot("ORD-1").await;
    assert!(s.order.driver_id.as_ref().is_some_and(|d| d.starts_with("bbd:D-")), "{s:?}");
    assert_eq!(s.order.job_id, s.bookings[0].job_id);
    assert_eq!(p.booking_states("ORD-1").await, [BookingState::Completed]);
    let counters = p.sim.read_report().counters;
    assert_eq!((counters.bookings, counters.polls, counters.callbacks_refused), (1, 0, 0));
    p.assert_at_rest().await;
}
