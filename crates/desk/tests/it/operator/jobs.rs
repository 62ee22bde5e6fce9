//! Cancelling and rescheduling jobs. An action that would be undone is refused with a reason.

use super::{bury_due, job};
use desk::operator::{
    error::{JobRefusal, OperateError},
    job::{RescheduleTime, cancel_job, reschedule_job},
};
use maintenance::recovery::reconciler;
use queue::NewJob;
use settings::{ScheduledTask, TaskSchedule};
use test_support::{Receiver, TestApp, millis, secs};

/// Creates an order that is offered to D1.
async fn offered() -> TestApp {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t
}

async fn refused(t: &TestApp, id: &str) -> JobRefusal {
    why_refused(cancel_job(&t.app.desk, &job(id)).await)
}

fn why_refused<T: std::fmt::Debug>(result: Result<T, OperateError>) -> JobRefusal {
    match result.unwrap_err() {
        OperateError::Refused(refused) => refused,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_timer_its_order_asks_for_is_not_cancelled() {
    let t = offered().await;
    let before = t.timers().await;
    for id in ["timeout:ORD-1:1", "lifetime:ORD-1"] {
        let refused = refused(&t, id).await;
        assert_eq!(refused.error_code(), "WOULD_BE_PUT_BACK");
        assert!(refused.to_string().contains("dispatchq order cancel ORD-1"), "{refused}");
    }
    assert_eq!(t.timers().await, before);
}

#[tokio::test]
async fn a_superseded_timer_is_cancelled_and_stays_away() {
    let t = offered().await;
    t.accept_offer("ORD-1").await;
    // The timeout job was cancelled when the offer was accepted.
    cancel_job(&t.app.desk, &job("lifetime:ORD-1")).await.unwrap();
    assert_eq!(reconciler::reconcile_in_full(&t.app.maintenance).await.unwrap().unwrap().inserted, 0);
    assert_eq!(t.timers().await.len(), 0);
    t.assert_sound().await;
}

#[tokio::test]
async fn an_undelivered_message_keeps_its_job() {
    let receiver = Receiver::start().await;
    let t = TestApp::with(|config| receiver.configure(config)).await;
    receiver.fail(axum::http::StatusCode::SERVICE_UNAVAILABLE, 100);
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let id = t.timers().await.into_keys().find(|id| id.starts_with("notify:")).unwrap();
    assert!(matches!(refused(&t, &id).await, JobRefusal::MessageAsks { .. }));
    t.sql("UPDATE outbox SET state = 'expired'").await;
    cancel_job(&t.app.desk, &job(&id)).await.unwrap();
}

#[tokio::test]
async fn the_next_run_of_a_schedule_stays_where_it_is() {
    let t = TestApp::with(|config| {
        config.schedules = [(ScheduledTask::Statistics, TaskSchedule::Every(secs(60)))].into();
    })
    .await;
    let id = t.timers().await.into_keys().next().unwrap();
    assert!(matches!(refused(&t, &id).await, JobRefusal::ScheduleAsks { schedule: "statistics", .. }));
    let later = why_refused(reschedule_job(&t.app.desk, &job(&id), RescheduleTime::In(secs(61))).await);
    assert!(matches!(later, JobRefusal::TooLate { by: "schedule", .. }), "{later:?}");
    // The reconciler does not need a job for another time of the same schedule, or for a removed schedule.
    for stray in ["tick:statistics:1", "tick:nonsense:1"] {
        let stray =
            NewJob { queue: jobs::queues::PERIODIC, id: job(stray), delay: secs(9), payload: None, slots: None };
        t.app.core.store.enqueue(std::slice::from_ref(&stray)).await.unwrap();
        cancel_job(&t.app.desk, &stray.id).await.unwrap();
    }
    assert_eq!(t.timers().await.into_keys().collect::<Vec<_>>(), [id]);
}

#[tokio::test]
async fn only_waiting_jobs_are_cancelled_or_rescheduled() {
    let t = TestApp::start().await;
    t.order("DEAD").await;
    bury_due(&t.app, "broken").await;
    t.order("RUNNING").await;
    assert_eq!(t.take().await.len(), 1);
    let before = (t.timers().await, super::dead_ids(&t.app).await);
    for (id, code) in [("dispatch:DEAD:1", "DEAD"), ("dispatch:RUNNING:1", "RUNNING"), ("dispatch:NONE:1", "ABSENT")] {
        assert_eq!(refused(&t, id).await.error_code(), code);
        // The delay does not matter, because the job is not waiting.
        for delay in [secs(0), secs(100_000)] {
            let refused = why_refused(reschedule_job(&t.app.desk, &job(id), RescheduleTime::In(delay)).await);
            assert_eq!(refused.error_code(), code, "{id}");
        }
    }
    assert_eq!((t.timers().await, super::dead_ids(&t.app).await), before);
}

#[tokio::test]
async fn rescheduled_timer_stays_within_the_allowed_minute() {
    let t = offered().await;
    let id = job("timeout:ORD-1:1");
    let due_ms = t.timers().await["timeout:ORD-1:1"];

    let too_late = why_refused(reschedule_job(&t.app.desk, &id, RescheduleTime::In(secs(180) + millis(1))).await);
    assert_eq!(too_late.error_code(), "WOULD_BE_MOVED_BACK");
    assert!(too_late.to_string().contains("08:03:00.000Z"), "the latest time: {too_late}");
    assert_eq!(t.timers().await["timeout:ORD-1:1"], due_ms);

    let moved = reschedule_job(&t.app.desk, &id, RescheduleTime::In(secs(180))).await.unwrap();
    assert_eq!(moved.not_before, None);
    for _ in 0..3 {
        assert_eq!(t.timers().await["timeout:ORD-1:1"], due_ms + 60_000);
        let report = reconciler::reconcile_in_full(&t.app.maintenance).await.unwrap().unwrap();
        assert_eq!((report.moved, report.inserted), (0, 0));
        t.advance(secs(59)).await;
    }
    t.run_for(secs(1900)).await;
    t.assert_sound().await;
}

#[tokio::test]
async fn early_timer_returns_to_its_deadline() {
    let t = offered().await;
    let due_ms = t.timers().await["timeout:ORD-1:1"];
    let moved = reschedule_job(&t.app.desk, &job("timeout:ORD-1:1"), RescheduleTime::In(secs(0))).await.unwrap();
    assert_eq!(moved.not_before.map(|at| at.timestamp_millis().unsigned_abs()), Some(due_ms));
    let rows = t.dump().await;
    assert_eq!(t.run_due().await.len(), 1);
    assert_eq!((t.dump().await, t.timers().await["timeout:ORD-1:1"]), (rows, due_ms));
}

#[tokio::test]
async fn a_time_is_taken_by_the_clock_of_postgres() {
    let t = offered().await;
    t.accept_offer("ORD-1").await;
    let id = job("lifetime:ORD-1");
    let at = chrono::DateTime::from_timestamp_millis((t.now_ms() + 7_000).cast_signed()).unwrap();
    let moved = reschedule_job(&t.app.desk, &id, RescheduleTime::At(at)).await.unwrap();
    assert_eq!((moved.due, t.timers().await["lifetime:ORD-1"]), (at, t.now_ms() + 7_000));
    t.advance(secs(8)).await;
    assert_eq!(
        why_refused(reschedule_job(&t.app.desk, &id, RescheduleTime::At(at)).await).error_code(),
        "TIME_HAS_PASSED"
    );
}
