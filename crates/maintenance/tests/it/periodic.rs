//! Schedules run once, cleanup keeps required rows, and a queue stopped by a person stays stopped.

use std::time::Duration;

use foundation::{queue_pauses, staff_actions::ActionAuthor};
use maintenance::{
    periodic::cleanup::{self, CleanupMode},
    recovery::reconciler,
};
use model::{decide::actions, order::OrderStatus};
use settings::{ScheduledTask, TaskSchedule};
use test_support::{TestApp, by, secs, update_order};

const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test]
async fn each_scheduled_run_is_done_once() {
    let every = |s| TaskSchedule::Every(secs(s));
    let t = TestApp::with(|config| {
        config.schedules = [(ScheduledTask::Statistics, every(60)), (ScheduledTask::Cleanup, every(3600))].into();
    })
    .await;
    t.run_for(secs(2 * 3600)).await;
    let runs =
        "SELECT name || ' ' || count(*) || ' ' || count(finished_at) FROM schedule_runs GROUP BY name ORDER BY name";
    assert_eq!(t.texts(runs).await, ["cleanup 2 2", "statistics 120 120"]);

    // A second delivery of the same run to another worker changes nothing.
    t.advance(secs(60)).await;
    let tick = t.take().await.remove(0);
    let both = tokio::join!(t.perform(&tick), t.perform(&tick));
    let outcome = t.perform(&tick).await;
    assert_eq!((&both.0, &both.1), (&outcome, &outcome));
    t.settle(&tick, outcome).await;
    assert_eq!(t.texts(runs).await, ["cleanup 2 2", "statistics 121 121"]);
    let snapshots = t.count("SELECT count(DISTINCT at) FROM queue_snapshots").await;
    assert_eq!(snapshots, 121);

    t.redis::<()>(&["FLUSHALL"]).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap();
    t.run_for(secs(60)).await;
    assert_eq!(t.texts(runs).await[1], "statistics 122 122");
    t.assert_sound().await;
}

#[tokio::test]
async fn cleanup_removes_what_has_served_its_time_and_nothing_else() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("OLD").await;
    t.run_due().await;
    t.accept_offer("OLD").await;
    t.carry_out("OLD", "D1").await;
    t.order_of("WAITING", "RIDE", "ODD").await;
    // An alert about an order that never existed is not removed with an order. It is kept until it is acknowledged.
    t.sql(
        "INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at)
         VALUES ('NEVER', 'FAILED_TO_GET_ORDER', '', '{}', dispatchq_now());
         INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, state, next_attempt_at, expires_at, created_at)
         SELECT 'NEVER', 'FAILED_TO_GET_ORDER', 'log', '', '{}', 'delivered', n, n, n FROM dispatchq_now() n;
         INSERT INTO admission_audit (actor, what) VALUES ('operator:test', 'flag')",
    )
    .await;
    t.run_for(DAY * 31).await;
    assert!(t.snapshot("WAITING").await.order.held_for_review);

    let offers = "SELECT count(*) FROM outbox WHERE kind = 'OFFER'";
    assert!(t.count(offers).await > 0);
    let would = cleanup::run(&t.app.maintenance, CleanupMode::DryRun).await.unwrap();
    assert!(would.messages > 0 && would.rankings > 0 && would.orders == 0, "{would:?}");
    assert!(t.count(offers).await > 0, "a dry run removes nothing");
    assert_eq!(cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap().messages, would.messages);
    assert_eq!(t.count(offers).await, 0);
    assert_eq!(t.count("SELECT count(*) FROM rankings").await, 0);
    assert_eq!(t.count("SELECT count(*) FROM outbox WHERE order_id = 'NEVER'").await, 0);
    // One alert is about the payment status, the other about the end of the order that has it.
    let kinds = ["FAILED_TO_GET_ORDER", "UNEXPECTED_STATE", "UNEXPECTED_STATE"];
    assert_eq!(t.texts("SELECT kind FROM alerts ORDER BY kind").await, kinds);
    t.sql("UPDATE alerts SET acked_at = raised_at, acked_by = 'x', next_escalation_at = NULL WHERE order_id = 'NEVER'")
        .await;
    assert_eq!(cleanup::run(&t.app.maintenance, CleanupMode::DryRun).await.unwrap().messages, 1);
    assert_eq!(cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap().messages, 1);
    assert_eq!(t.texts("SELECT kind FROM alerts").await, kinds[1..]);
    t.assert_sound().await;

    t.advance(DAY * 335).await;
    let report = cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap();
    assert_eq!(report.orders, 1);
    assert_eq!(t.texts("SELECT id FROM orders").await, ["WAITING"]);
    // The events of the removed order are kept for a while, and the checker reports no violation.
    assert!(t.count("SELECT count(*) FROM audit_events WHERE order_id = 'OLD'").await > 0);
    t.assert_sound().await;

    let changes_of_areas = "SELECT count(*) FROM admission_audit";
    assert_eq!(t.count(changes_of_areas).await, 1, "who decided what stays as long as the history");
    t.order("NEW").await;
    t.advance(DAY * 50).await;
    cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap();
    assert_eq!(t.count(changes_of_areas).await, 0);
    update_order(&t.app.orders, &"WAITING".parse().unwrap(), |s| actions::cancel_order(s, &by("operator:test"), None))
        .await
        .unwrap();
    // An order with a pending customer message is not removed.
    t.sql("UPDATE outbox SET state = 'delivered' WHERE state = 'pending'").await;
    t.sql("UPDATE alerts SET acked_at = raised_at, acked_by = 'x', next_escalation_at = NULL WHERE acked_at IS NULL")
        .await;
    t.advance(DAY * 366).await;
    assert_eq!(cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap().orders, 1);
    assert_eq!(cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap(), cleanup::CleanupReport::default());
    assert_eq!(t.status("NEW").await, OrderStatus::Dispatching);
}

#[tokio::test]
async fn a_stopped_queue_stays_stopped_when_redis_forgets() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    let operator = by("operator:test");
    let author = ActionAuthor { actor: &operator, reason: None };
    assert!(queue_pauses::pause_queue(&t.app.core, jobs::queues::DISPATCH, author).await.unwrap());
    assert!(!queue_pauses::pause_queue(&t.app.core, jobs::queues::DISPATCH, author).await.unwrap());
    t.order("ORD-1").await;
    assert_eq!(t.run_due().await.len(), 0);
    t.redis::<()>(&["FLUSHALL"]).await;
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap();
    assert_eq!(t.run_due().await.len(), 0);

    assert!(queue_pauses::resume_queue(&t.app.core, jobs::queues::DISPATCH, author).await.unwrap());
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "D1");
    t.assert_sound().await;
}
