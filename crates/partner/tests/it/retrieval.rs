//! The tests that the design of the job id retrieval names. Polling starts 5 s after the booking. Pauses start at 2 s
//! and double up to 60 s, with 30 % jitter. Polling lasts 30 minutes.

use std::sync::Arc;

use serde_json::json;

use accounts::api_keys::AccountRole;
use foundation::system::{Rng, SeededRng};
use model::{
    messages::{MANUAL_REFUND_REQUIRED, STATUS_UPDATE_FAILED},
    order::{BookingState, OrderStatus},
    partner::backoff,
};
use test_support::{
    Receiver, millis,
    partnership::{PARTNER, Partnership, SERVICE, partner, patient, silent},
    secs,
};

/// The callback arrives within the first 5 s, so the partner is never polled.
#[tokio::test]
async fn success_first_attempt() {
    let p = Partnership::start(patient()).await;
    let booking_id = p.booked("ORD-1", "PAID").await;
    p.run_for(secs(4)).await;
    p.sim_steps(&booking_id, "ORD-1", OrderStatus::Assigned).await;
    p.run_for(secs(60)).await;
    assert_eq!(p.polls(), 0);
    assert_eq!(p.reasons("ORD-1").await, ["ORDER_CREATED", "ATTEMPT_STARTED", "BOOKED", "JOB_ID_VIA_CALLBACK"]);
    p.assert_sound().await;
}

/// No callback arrives; the third poll returns the job id.
#[tokio::test]
async fn success_after_retries() {
    let p = Partnership::start(silent()).await;
    let booking_id = p.booked("ORD-1", "PAID").await;
    let pauses = p.until_polled(2).await;
    assert_eq!(pauses[0], 5.0);
    assert!((1.4..=2.6).contains(&pauses[1]), "{pauses:?}");
    assert_eq!(p.status("ORD-1").await, OrderStatus::PendingJobId);
    assert!(p.sim.take_step(&booking_id));
    let pauses = p.until_polled(3).await;
    assert!((2.8..=5.2).contains(&pauses[0]), "{pauses:?}");
    let s = p.snapshot("ORD-1").await;
    assert_eq!((s.order.status, s.order.poll_no), (OrderStatus::Assigned, 3));
    assert_eq!(s.order.job_id, s.bookings[0].job_id);
    assert!(s.order.job_id.is_some());
    assert_eq!(p.reasons("ORD-1").await.last().unwrap(), "JOB_ID_VIA_PROACTIVE");
    p.assert_sound().await;
}

#[tokio::test]
async fn polls_follow_the_backoff_exactly() {
    let mut p = Partnership::start(silent()).await;
    p.booked("ORD-1", "PAID").await;
    p.t.app = p.t.app.with_rng(Arc::new(SeededRng::new(11)));
    let poll = p.t.app.partners.registry.get(&PARTNER.into()).unwrap().config.poll.clone();
    let pauses = p.until_polled(4).await;
    let same = SeededRng::new(11);
    let drawn = (1..=3).map(|polls| backoff::poll_pause(&poll, polls, same.next_unit()).as_secs_f64());
    for (pause, expected) in pauses.iter().zip([5.0].into_iter().chain(drawn)) {
        // Rows store milliseconds.
        assert!((pause - expected).abs() <= 0.001, "{pauses:?}: {expected}");
    }
    assert_eq!(pauses.len(), 4);
}

/// 30 minutes of polls without a job id end the order and its booking.
#[tokio::test]
async fn max_retries_exceeded() {
    let p = Partnership::start(silent()).await;
    p.booked("ORD-1", "UNPAID").await;
    p.run_for(secs(1799)).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::PendingJobId);
    // 34 polls without jitter.
    assert!((27..=46).contains(&p.polls()), "{}", p.polls());
    p.run_for(secs(1)).await;
    let polls = p.polls();
    assert_eq!(p.status("ORD-1").await, OrderStatus::CancelledBySystem);
    assert_eq!(p.booking_states("ORD-1").await, [BookingState::Cancelled]);
    p.run_for(secs(600)).await;
    assert_eq!(p.polls(), polls, "the partner is asked no more");
    p.assert_at_rest().await;
}

/// A budget shorter than the lifetime ends only the polling. A later callback still changes the order.
#[tokio::test]
async fn polling_ends_with_its_budget_and_the_callback_still_counts() {
    let p = Partnership::with(patient(), |config| partner(config).poll.budget = secs(600)).await;
    let booking_id = p.booked("ORD-1", "UNPAID").await;
    p.run_for(secs(700)).await;
    let polls = p.polls();
    assert_eq!(p.reasons("ORD-1").await.last().unwrap(), "POLLING_ENDED");
    p.run_for(secs(300)).await;
    assert_eq!((p.polls(), p.status("ORD-1").await), (polls, OrderStatus::PendingJobId));
    p.sim_steps(&booking_id, "ORD-1", OrderStatus::Assigned).await;
    p.assert_sound().await;
}

/// The partner does not know the booking. After a grace time of 60 s polling stops and the order is compensated.
#[tokio::test]
async fn permanent_error() {
    let mut p = Partnership::start(silent()).await;
    p.booked("ORD-1", "PAID").await;
    p.replace_partner(silent()).await;
    p.run_for(secs(59)).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::PendingJobId);
    assert!(p.polls() >= 3, "{}", p.polls());
    // One poll within the grace time, and one after it.
    p.run_for(secs(90)).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    let why = p.texts("SELECT payload->>'reason' FROM outbox WHERE kind = 'MANUAL_REFUND_REQUIRED'").await;
    assert_eq!(why, ["Job ID retrieval failed: the partner does not know the booking"]);
    assert_eq!(p.booking_states("ORD-1").await, [BookingState::Refused]);
    let reasons = p.reasons("ORD-1").await;
    assert_eq!(reasons[2..], ["BOOKED", "BOOKING_NOT_FOUND", "COMPENSATED_AFTER_PAYMENT"]);
    let polls = p.polls();
    p.run_for(secs(600)).await;
    assert_eq!(p.polls(), polls, "the partner is asked no more");
    p.assert_at_rest().await;
}

/// An order that is created over HTTP is polled after 5 s and until the trip ends.
#[tokio::test]
async fn end_to_end() {
    let p = Partnership::start(silent()).await;
    let producer = p.key(AccountRole::Producer).await;
    let new = json!({ "order_id": "ORD-1", "service_type": SERVICE, "payment_status": "PAID",
                      "pickup": { "latitude": -6.2088, "longitude": 106.8456 } });
    let created = p.api.post("/api/v1/orders", &producer, new).await;
    assert_eq!((created.status, created.text("status")), (201, "PENDING_JOB_ID"), "{created:?}");
    p.run_for(millis(4_999)).await;
    assert_eq!(p.polls(), 0);
    p.run_for(millis(1)).await;
    assert_eq!(p.polls(), 1);

    let booking_id = p.booking_id("ORD-1", 1).await;
    for (status, within) in [
        (OrderStatus::Assigned, 10),
        (OrderStatus::DriverAssigned, 60),
        (OrderStatus::PickedUp, 400),
        (OrderStatus::Completed, 400),
    ] {
        assert!(p.sim.take_step(&booking_id));
        p.run_for(secs(within)).await;
        assert_eq!(p.status("ORD-1").await, status);
    }
    let job_id = p.snapshot("ORD-1").await.order.job_id.unwrap();
    let found = p.api.get(&format!("/api/v1/orders?job_id={job_id}"), &producer).await;
    assert_eq!((found.status, &found.body["orders"][0]["order_id"]), (200, &json!("ORD-1")));
    p.assert_at_rest().await;
}

/// The callback arrives 7 s after the booking and ends the polling, which has already started.
#[tokio::test]
async fn delayed_callback() {
    let p = Partnership::start(patient()).await;
    let booking_id = p.booked("ORD-1", "PAID").await;
    p.run_for(secs(7)).await;
    let polls = p.polls();
    assert!((1..=2).contains(&polls), "{polls}");
    p.sim_steps(&booking_id, "ORD-1", OrderStatus::Assigned).await;
    p.run_for(secs(100)).await;
    assert_eq!(p.polls(), polls);
    assert_eq!(p.reasons("ORD-1").await.last().unwrap(), "JOB_ID_VIA_CALLBACK");
    p.assert_sound().await;
}

/// A paid order without a job id after 30 minutes: support is asked to refund.
#[tokio::test]
async fn status_update_after_timeout() {
    for payment in ["PAID", "SETTLEMENT"] {
        let p = Partnership::start(silent()).await;
        p.booked("ORD-1", payment).await;
        p.run_for(secs(1801)).await;
        assert_eq!(p.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
        let alert = (MANUAL_REFUND_REQUIRED.to_owned(), "log".to_owned(), "delivered".to_owned());
        assert!(p.messages("ORD-1").await.contains(&alert));
        assert_eq!(p.messages_of("ORD-1", MANUAL_REFUND_REQUIRED).await, 1);
        p.assert_at_rest().await;
    }
}

/// An unpaid order without a job id after 30 minutes: it is cancelled without manual action.
#[tokio::test]
async fn simple_cancel() {
    for payment in ["UNPAID", "PENDING"] {
        let p = Partnership::start(silent()).await;
        p.booked("ORD-1", payment).await;
        p.run_for(secs(1801)).await;
        assert_eq!(p.status("ORD-1").await, OrderStatus::CancelledBySystem);
        assert_eq!(p.messages_of("ORD-1", MANUAL_REFUND_REQUIRED).await, 0);
        p.assert_at_rest().await;
    }
}

/// The database refuses the end of the order. Support is notified once, without the database.
#[tokio::test]
async fn status_update_failure() {
    let receiver = Receiver::start().await;
    let p = Partnership::with(silent(), |config| receiver.configure(config)).await;
    p.booked("ORD-1", "PAID").await;
    p.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON orders FOR EACH ROW WHEN (NEW.status LIKE 'CANCELLED%')
         EXECUTE FUNCTION refuse()",
    )
    .await;
    p.run_for(secs(1801)).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::Compensating);
    let told: Vec<_> = receiver.received().into_iter().filter(|m| m.body["type"] == STATUS_UPDATE_FAILED).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].body["data"]["order_id"], "ORD-1");

    p.sql("DROP TRIGGER refuse ON orders").await;
    p.run_for(secs(60)).await;
    assert_eq!(p.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    p.assert_at_rest().await;
}
