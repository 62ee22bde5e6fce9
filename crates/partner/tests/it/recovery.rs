//! Redis loses the jobs of partner orders, jobs die, and old orders are removed.

use partner_sim::values::EventRate;
use serde_json::json;

use maintenance::{
    periodic::cleanup::{self, CleanupMode},
    recovery::{reconciler, repair::RepairReport},
};
use model::{
    messages::TIMER_DEAD,
    order::{BookingState, OrderStatus},
    partner::observation::CallbackBody,
};
use partner::inbox;
use queue::Outcome;
use test_support::{
    ids,
    partnership::{PARTNER, Partnership, partner, silent},
    redis_command, secs,
};

/// Creates one order for each kind of job: a booking without an answer, a poll, a cancel, and a callback that was not
/// processed.
async fn waiting() -> (Partnership, [(&'static str, String); 4]) {
    let p = Partnership::start(silent()).await;
    for order in ["POLLED", "CANCELLED", "CALLED"] {
        p.booked(order, "UNPAID").await;
    }
    p.sim.change_knobs(|knobs| knobs.reset_rate = EventRate::ALWAYS).unwrap();
    p.taxi("BOOKING", "PAID").await;
    p.run_due().await;
    p.cancel("CANCELLED").await.unwrap();
    // The API stores the callback like this before it processes it.
    let raw = p.callback("CALLED", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
    let body: CallbackBody = serde_json::from_value(raw.clone()).unwrap();
    let row = inbox::store_callback(&p.app.orders.rows, &PARTNER.into(), &body, &raw).await.unwrap();
    p.sim.change_knobs(|knobs| knobs.reset_rate = EventRate::NEVER).unwrap();
    let jobs = [
        (jobs::queues::DISPATCH, "dispatch:BOOKING:1".to_owned()),
        (jobs::queues::JOBID_POLL, "poll:POLLED:1".to_owned()),
        (jobs::queues::COMPENSATION, "cancel-booking:CANCELLED:1".to_owned()),
        (jobs::queues::JOBID_POLL, format!("callback:CALLED:{}", row.id)),
    ];
    (p, jobs)
}

async fn reconcile(p: &Partnership) -> RepairReport {
    reconciler::reconcile_once(&p.app.maintenance).await.unwrap().expect("no other process reconciles")
}

async fn assert_all_go_on(p: &Partnership) {
    p.run_for(secs(4)).await;
    assert_eq!(p.booking("BOOKING", 1).await.state, BookingState::Booked);
    assert_eq!(p.booking_states("CANCELLED").await, [BookingState::Cancelled]);
    assert_eq!(p.snapshot("CALLED").await.order.job_id.as_deref(), Some("J-1"));
    assert!(p.polls() > 0);
    p.assert_sound().await;
}

#[tokio::test]
async fn a_flush_takes_no_booking_poll_cancel_or_callback_along() {
    let (p, jobs) = waiting().await;
    redis_command::<()>(&p.redis.url(), &["FLUSHALL"]).await;
    assert!(reconcile(&p).await.rebuild);
    let timers = p.timers().await;
    for (_, job) in &jobs {
        assert!(timers.contains_key(job), "{job}: {timers:?}");
    }
    p.run_for(secs(6)).await;
    assert_all_go_on(&p).await;
}

#[tokio::test]
async fn lost_overdue_job_is_put_back() {
    let (p, jobs) = waiting().await;
    for (queue, job) in &jobs {
        // The job of the callback was never enqueued.
        p.redis::<i64>(&["ZREM", &p.app.core.store.keys().due_set(queue), job]).await;
    }
    p.advance(secs(9)).await;
    assert_eq!(reconcile(&p).await.inserted, 4);
    assert_all_go_on(&p).await;
}

#[tokio::test]
async fn a_partner_that_is_away_needs_no_repair() {
    let p = Partnership::with(silent(), |config| partner(config).breaker.failures = 3).await;
    p.booked("ORD-1", "PAID").await;
    p.sim.change_knobs(|knobs| knobs.down = true).unwrap();
    p.taxi("ORD-2", "UNPAID").await;
    for _ in 0..60 {
        p.run_for(secs(11)).await;
        let report = reconcile(&p).await;
        assert_eq!(report, RepairReport { looked_at: report.looked_at, ..RepairReport::default() });
    }
    assert_eq!(p.status("ORD-1").await, OrderStatus::PendingJobId);
    p.assert_sound().await;
}

/// Makes the job die with its next delivery. Checks that the reconciler holds its order for review once.
async fn killed(p: &Partnership, job: &str) {
    loop {
        for leased in p.take().await {
            let found = leased.delivery.id.as_str() == job;
            let outcome = if found { Outcome::Dead("it can never work".to_owned()) } else { p.perform(&leased).await };
            p.settle(&leased, outcome).await;
            if found {
                p.advance(secs(4)).await;
                assert_eq!(reconcile(p).await.held, 1, "{job}");
                p.run_for(secs(10)).await;
                assert_eq!(reconcile(p).await.held, 0, "once");
                return;
            }
        }
        let next_ms = p.next_due_ms().await.unwrap_or_else(|| panic!("{job} never comes"));
        p.move_clock_to(next_ms.max(p.now_ms())).await;
    }
}

#[tokio::test]
async fn a_dead_job_puts_its_order_on_a_persons_desk() {
    for (n, order, states) in [
        // The rows of these bookings ask for no further job ...
        (0, "BOOKING", BookingState::Cancelled),
        (1, "POLLED", BookingState::Cancelled),
        // ... and the row of this one does not trigger one without manual action.
        (2, "CANCELLED", BookingState::CancelWanted),
    ] {
        let (p, jobs) = waiting().await;
        killed(&p, &jobs[n].1).await;
        assert!(p.snapshot(order).await.order.held_for_review, "{order}");
        assert_eq!(p.messages_of(order, TIMER_DEAD).await, 1, "{order}");
        assert_eq!(p.booking_states(order).await, [states], "{order}");
        p.assert_sound().await;
    }
}

#[tokio::test]
async fn a_job_of_a_poll_that_is_over_is_dropped() {
    let p = Partnership::start(silent()).await;
    p.booked("ORD-1", "PAID").await;
    p.tell("ORD-1", 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
    let ran = p.run_for(secs(60)).await;
    assert_eq!(ids(&ran).iter().filter(|id| id.starts_with("poll:")).count(), 1);
    assert_eq!(p.polls(), 0);
}

#[tokio::test]
async fn cleanup_takes_what_hangs_on_an_old_order_along() {
    let p = Partnership::start(silent()).await;
    for order in ["OLD", "STUCK"] {
        p.booked(order, "UNPAID").await;
        p.tell(order, 1, "job_id_assigned", json!({ "job_id": "J-1" })).await;
        p.sql(&format!("INSERT INTO payment_events VALUES ('{order}', 'P-1', 'PENDING', dispatchq_now())")).await;
        p.cancel(order).await.unwrap();
    }
    p.run_for(secs(5)).await;
    // An order is kept while the cancel of its booking is not confirmed.
    p.sql("UPDATE bookings SET state = 'cancel_wanted', next_try_at = dispatchq_now(), closed_at = NULL WHERE order_id = 'STUCK'")
        .await;
    let tables = ["orders", "bookings", "inbox", "payment_events"];
    for table in tables {
        assert_eq!(p.count(&format!("SELECT count(*) FROM {table}")).await, 2, "{table}");
    }
    p.advance(secs(400 * 24 * 3600)).await;
    assert_eq!(cleanup::run(&p.app.maintenance, CleanupMode::Remove).await.unwrap().orders, 1);
    for table in tables {
        assert_eq!(p.count(&format!("SELECT count(*) FROM {table}")).await, 1, "{table}");
    }
}
