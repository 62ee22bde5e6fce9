//! Partner events in every order of arrival, processed by the real handlers.

use partner_sim::values::EventRate;
use serde_json::json;

use model::order::{BookingState, OrderStatus};
use test_support::{
    eventually,
    partnership::{Partnership, patient, silent},
    secs,
};

/// Starts a partnership whose partner books `ORD-1` and whose answer is lost.
async fn unanswered() -> (Partnership, String) {
    let p = Partnership::start(silent()).await;
    p.lose_answers(EventRate::ALWAYS);
    p.taxi("ORD-1", "PAID").await;
    p.run_due().await;
    assert_eq!(p.booking("ORD-1", 1).await.state, BookingState::Unknown);
    let booking_id = p.sim.read_report().open.remove(0);
    (p, booking_id)
}

#[tokio::test]
async fn a_callback_quicker_than_the_answer_is_the_answer() {
    let (p, booking_id) = unanswered().await;
    assert!(p.sim.take_step(&booking_id));
    let said = p.at_partner(&booking_id).await;
    let fields = json!({ "booking_id": booking_id, "job_id": said["job_id"] });
    assert_eq!(p.tell("ORD-1", 1, "job_id_assigned", fields).await, "processed");
    let booking = p.booking("ORD-1", 1).await;
    assert_eq!((booking.state, booking.booking_id.unwrap()), (BookingState::Booked, booking_id));
    assert_eq!(p.status("ORD-1").await, OrderStatus::Assigned);
    p.lose_answers(EventRate::NEVER);
    p.run_for(secs(30)).await;
    assert_eq!(p.sim.read_report().counters.bookings, 1);
    assert_eq!(p.reasons("ORD-1").await[2..], ["BOOKED", "JOB_ID_VIA_CALLBACK"]);
    p.assert_sound().await;
}

#[tokio::test]
async fn a_callback_that_comes_twice_counts_once() {
    let p = Partnership::start(silent()).await;
    p.booked("ORD-1", "PAID").await;
    let body = p.callback("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
    assert_eq!(p.send(&body).await.body["status"], "processed");
    let before = p.dump().await;
    assert_eq!(p.send(&body).await.body["status"], "processed");
    // Another event with the same content.
    let again = p.callback("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
    assert_eq!(p.send(&again).await.body["status"], "processed");
    assert_eq!(p.dump().await, before);
    assert_eq!(p.texts("SELECT state FROM inbox ORDER BY id").await, ["processed", "ignored"]);
}

#[tokio::test]
async fn another_job_id_is_asked_about_and_the_answer_holds() {
    let p = Partnership::start(silent()).await;
    let booking_id = p.booked("ORD-1", "PAID").await;
    assert!(p.sim.take_step(&booking_id));
    let right = p.at_partner(&booking_id).await["job_id"].as_str().unwrap().to_owned();
    for (said, held) in [("J-wrong", "J-wrong"), (&right, "J-wrong")] {
        p.tell("ORD-1", 1, "job_id_assigned", json!({ "job_id": said })).await;
        assert_eq!(p.snapshot("ORD-1").await.order.job_id.unwrap(), held);
    }
    p.run_due().await;
    assert_eq!(p.snapshot("ORD-1").await.order.job_id.unwrap(), right);
    assert_eq!(p.reasons("ORD-1").await[3..], ["JOB_ID_VIA_CALLBACK", "JOB_ID_CONFLICT", "JOB_ID_CHANGED"]);
    p.assert_sound().await;
}

/// The partner answered for an older state of the order.
#[tokio::test]
async fn late_answer_is_checked_against_current_order() {
    let p = Partnership::start(silent()).await;
    p.booked("ORD-1", "PAID").await;
    p.sim.change_knobs(|knobs| knobs.latency = "300ms".parse().unwrap()).unwrap();
    p.advance(secs(6)).await;
    let requests = || p.sim.read_report().counters.requests;
    let before = requests();
    let telling = async {
        eventually("the partner is asked", || async { requests() > before }).await;
        p.tell("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await
    };
    let (_, told) = tokio::join!(p.run_due(), telling);
    assert_eq!(told, "processed");
    let order = p.snapshot("ORD-1").await.order;
    assert_eq!((order.status, order.job_id.as_deref()), (OrderStatus::Assigned, Some("J-1")));
    assert_eq!(p.reasons("ORD-1").await[3..], ["JOB_ID_VIA_CALLBACK"]);
    p.assert_sound().await;
}

#[tokio::test]
async fn early_driver_callback_polls_partner_at_once() {
    let p = Partnership::start(silent()).await;
    let booking_id = p.booked("ORD-1", "PAID").await;
    assert!(p.sim.take_step(&booking_id) && p.sim.take_step(&booking_id));
    p.tell("ORD-1", 1, "driver_assigned", json!({ "driver_id": "D-7" })).await;
    assert_eq!((p.status("ORD-1").await, p.polls()), (OrderStatus::PendingJobId, 0));
    p.run_due().await;
    assert_eq!((p.status("ORD-1").await, p.polls()), (OrderStatus::DriverAssigned, 1));
    p.assert_sound().await;
}

// Rule F45: `picked_up` before `driver_assigned` advances the order, and the timeline records both events and their order of arrival.
#[tokio::test]
async fn early_pickup_is_recorded_with_its_order_of_arrival() {
    let p = Partnership::start(silent()).await;
    let details = async |order: &str| {
        p.texts(&format!(
            "SELECT concat_ws(': ', reason, detail) FROM order_events WHERE order_id = '{order}' AND seq > (
                 SELECT seq FROM order_events WHERE order_id = '{order}' AND reason = 'BOOKED') ORDER BY seq"
        ))
        .await
    };
    // The partner reports the driver late.
    p.booked("ORD-1", "PAID").await;
    p.tell("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
    p.tell("ORD-1", 1, "picked_up", json!({})).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::PickedUp);
    p.tell("ORD-1", 1, "driver_assigned", json!({ "driver_id": "D-7" })).await;
    assert_eq!(p.snapshot("ORD-1").await.order.driver_id.as_deref(), Some("bbd:D-7"));
    assert_eq!(
        details("ORD-1").await,
        [
            "JOB_ID_VIA_CALLBACK: J-1, after 0 polls",
            "DRIVER_FOUND: picked_up came before driver_assigned",
            "PICKED_UP",
            "CALLBACK_OUT_OF_ORDER: driver_assigned came after picked_up: bbd:D-7",
        ]
    );
    // A late event does not replace a known driver.
    p.tell("ORD-1", 1, "driver_assigned", json!({ "driver_id": "D-8" })).await;
    assert_eq!(p.snapshot("ORD-1").await.order.driver_id.as_deref(), Some("bbd:D-7"));
    assert_eq!(
        details("ORD-1").await.last().unwrap(),
        "CALLBACK_OUT_OF_ORDER: driver_assigned came after picked_up: bbd:D-8"
    );

    // The pickup may also arrive before the job id.
    let booking_id = p.booked("ORD-2", "PAID").await;
    for _ in 0..3 {
        assert!(p.sim.take_step(&booking_id));
    }
    p.tell("ORD-2", 1, "picked_up", json!({ "driver_id": "D-9" })).await;
    assert_eq!(details("ORD-2").await, ["CALLBACK_OUT_OF_ORDER: picked_up came before job_id_assigned"]);
    p.run_due().await;
    assert_eq!(p.status("ORD-2").await, OrderStatus::PickedUp);

    // Events that arrive in order add no note.
    p.booked("ORD-3", "PAID").await;
    p.tell("ORD-3", 1, "job_id_assigned", json!({ "job_id": "J-3" })).await;
    p.tell("ORD-3", 1, "driver_assigned", json!({ "driver_id": "D-1" })).await;
    p.tell("ORD-3", 1, "picked_up", json!({ "driver_id": "D-1" })).await;
    assert_eq!(details("ORD-3").await[1..], ["DRIVER_FOUND", "PICKED_UP"]);
    p.assert_sound().await;
}

// Rule F45: `completed` before the events that it follows is recorded as out of order, and the late events are recorded too.
#[tokio::test]
async fn a_completion_that_comes_first_completes() {
    let p = Partnership::start(silent()).await;
    let booking_id = p.booked("ORD-1", "PAID").await;
    for _ in 0..4 {
        assert!(p.sim.take_step(&booking_id));
    }
    let ids = json!({ "job_id": "J-1", "driver_id": "D-7" });
    p.tell("ORD-1", 1, "completed", ids.clone()).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::Completed);
    let before = p.dump().await;
    for kind in ["job_id_assigned", "no_driver", "driver_cancelled", "booking_cancelled", "completed"] {
        p.tell("ORD-1", 1, kind, ids.clone()).await;
    }
    assert_eq!(p.dump().await, before, "what comes late changes nothing");
    for kind in ["picked_up", "driver_assigned"] {
        p.tell("ORD-1", 1, kind, ids.clone()).await;
    }
    let details = "SELECT detail FROM order_events WHERE order_id = 'ORD-1' AND seq > (
                       SELECT seq FROM order_events WHERE order_id = 'ORD-1' AND reason = 'JOB_ID_VIA_CALLBACK')
                   AND detail IS NOT NULL ORDER BY seq";
    assert_eq!(
        p.texts(details).await,
        [
            "completed came before driver_assigned",
            "completed came before picked_up",
            "picked_up came after completed: bbd:D-7",
            "driver_assigned came after completed: bbd:D-7",
        ]
    );
    p.assert_at_rest().await;
}

#[tokio::test]
async fn what_comes_after_a_cancel_is_cancelled_at_the_partner() {
    // The answer to the booking is lost and the customer cancels. Only then does a callback report the booking.
    let (p, booking_id) = unanswered().await;
    p.cancel("ORD-1").await.unwrap();
    assert_eq!(p.booking("ORD-1", 1).await.state, BookingState::CancelWanted);
    p.tell("ORD-1", 1, "job_id_assigned", json!({ "booking_id": booking_id, "job_id": "J-1" })).await;
    p.lose_answers(EventRate::NEVER);
    p.run_for(secs(60)).await;
    assert_eq!(p.booking_states("ORD-1").await, [BookingState::Cancelled]);
    assert_eq!(p.at_partner(&booking_id).await["status"], "cancelled");
    p.assert_at_rest().await;
}

#[tokio::test]
async fn a_booking_whose_answer_was_lost_is_found_and_cancelled() {
    let (p, booking_id) = unanswered().await;
    p.cancel("ORD-1").await.unwrap();
    p.lose_answers(EventRate::NEVER);
    p.run_for(secs(60)).await;
    let counters = p.sim.read_report().counters;
    assert_eq!((counters.bookings, counters.bookings_repeated, counters.cancels), (1, 1, 1));
    assert_eq!(p.at_partner(&booking_id).await["status"], "cancelled");
    assert_eq!(p.booking_states("ORD-1").await, [BookingState::Cancelled]);
    p.assert_at_rest().await;
}

#[tokio::test]
async fn a_driver_found_after_the_lifetime_is_too_late() {
    let p = Partnership::start(silent()).await;
    let booking_id = p.booked("ORD-1", "PAID").await;
    assert!(p.sim.take_step(&booking_id) && p.sim.take_step(&booking_id));
    p.advance(secs(1800)).await;
    // The lifetime has expired, but its job has not run yet.
    p.tell("ORD-1", 1, "driver_assigned", json!({ "job_id": "J-1", "driver_id": "D-7" })).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::PendingJobId);
    p.run_due().await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    p.run_for(secs(60)).await;
    assert_eq!(p.at_partner(&booking_id).await["status"], "cancelled");
    p.assert_at_rest().await;
}

#[tokio::test]
async fn a_trip_that_cannot_be_cancelled_is_somebodys_business() {
    let p = Partnership::start(silent()).await;
    let booking_id = p.booked("ORD-1", "PAID").await;
    for _ in 0..3 {
        assert!(p.sim.take_step(&booking_id));
    }
    p.cancel("ORD-1").await.unwrap();
    p.run_for(secs(60)).await;
    assert_eq!(p.sim.read_report().counters.cancels_too_late, 1);
    assert_eq!(p.messages_of("ORD-1", "UNEXPECTED_STATE").await, 1);
    assert_eq!(p.booking_states("ORD-1").await, [BookingState::Completed]);
    p.assert_sound().await;
}

#[tokio::test]
async fn a_trip_the_partner_has_forgotten_is_somebodys_business() {
    let mut p = Partnership::start(patient()).await;
    let booking_id = p.assigned("ORD-1", "PAID").await;
    p.sim_steps(&booking_id, "ORD-1", OrderStatus::DriverAssigned).await;
    p.replace_partner(silent()).await;
    p.run_for(secs(1000)).await;
    let order = p.snapshot("ORD-1").await.order;
    assert!(order.status == OrderStatus::DriverAssigned && !order.held_for_review, "{order:?}");
    assert!(order.next_poll_at.is_some(), "it is asked again: {order:?}");
    assert_eq!(p.messages_of("ORD-1", "UNEXPECTED_STATE").await, 1);
    p.assert_sound().await;
}

#[tokio::test]
async fn driver_cancellation_starts_the_next_booking() {
    let p = Partnership::start(patient()).await;
    let first = p.assigned("ORD-1", "PAID").await;
    p.sim_steps(&first, "ORD-1", OrderStatus::DriverAssigned).await;
    p.tell("ORD-1", 1, "driver_cancelled", json!({})).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::PendingJobId);
    p.run_for(secs(15)).await;
    let second = p.booking_id("ORD-1", 2).await;
    assert_eq!(p.at_partner(&first).await["status"], "cancelled");
    for status in [OrderStatus::Assigned, OrderStatus::DriverAssigned, OrderStatus::PickedUp, OrderStatus::Completed] {
        p.sim_steps(&second, "ORD-1", status).await;
    }
    p.run_due().await;
    p.assert_at_rest().await;
}

#[tokio::test]
async fn expired_attempt_is_polled_before_it_ends() {
    for found in [true, false] {
        let p = Partnership::start(patient()).await;
        let booking_id = p.assigned("ORD-1", "PAID").await;
        p.sim.change_knobs(|knobs| knobs.callback_rate = EventRate::NEVER).unwrap();
        assert!(!found || p.sim.take_step(&booking_id));
        p.run_for(secs(119)).await;
        assert_eq!((p.status("ORD-1").await, p.polls()), (OrderStatus::Assigned, 0));
        p.run_for(secs(5)).await;
        let (status, states) = if found {
            (OrderStatus::DriverAssigned, vec![BookingState::Booked])
        } else {
            (OrderStatus::PendingJobId, vec![BookingState::Cancelled])
        };
        assert_eq!((p.status("ORD-1").await, p.booking_states("ORD-1").await), (status, states));
        assert_eq!(p.polls(), 1);
        p.assert_sound().await;
    }
}
