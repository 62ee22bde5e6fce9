//! Single timers that are missing, or far from the deadline in their row.

use maintenance::recovery::{
    reconciler,
    repair::{self, RepairReport},
};
use model::{messages::MANUAL_REFUND_REQUIRED, order::OrderStatus};
use test_support::{TestApp, ids, secs};

async fn reconcile(t: &TestApp) -> RepairReport {
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap().expect("no other process reconciles")
}

async fn lose(t: &TestApp, queue: &str, job: &str) {
    assert_eq!(t.redis::<i64>(&["ZREM", &t.app.core.store.keys().due_set(queue), job]).await, 1);
}

#[tokio::test]
async fn without_faults_nothing_is_ever_repaired() {
    let t = TestApp::with_offer().await;
    t.order_of("ORD-2", "RENT", "PAID").await;
    t.run_due().await;
    let mut looked_at = 0;
    for _ in 0..180 {
        let report = reconcile(&t).await;
        assert_eq!(report, RepairReport { looked_at: report.looked_at, ..RepairReport::default() });
        looked_at += report.looked_at;
        // The worker is late: a due job has not run yet when the reconciler reads it.
        t.advance(secs(11)).await;
        let report = reconcile(&t).await;
        assert_eq!(report, RepairReport { looked_at: report.looked_at, ..RepairReport::default() });
        looked_at += report.looked_at;
        t.run_due().await;
    }
    assert!(looked_at > 0, "late jobs are looked at");
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystem);
    let logged = t.count("SELECT count(*) FROM reconcile_log WHERE NOT rebuild").await;
    assert_eq!(logged, 0);
    t.assert_sound().await;
}

#[tokio::test]
async fn a_lost_timeout_is_put_back_once_it_is_overdue() {
    let t = TestApp::with_offer().await;
    lose(&t, jobs::queues::DISPATCH_TIMEOUT, "timeout:ORD-1:1").await;
    t.advance(secs(122)).await;
    assert_eq!(reconcile(&t).await.inserted, 0);
    t.advance(secs(2)).await;
    assert_eq!(reconcile(&t).await.inserted, 1);
    assert_eq!(ids(&t.run_due().await)[0], "timeout:ORD-1:1");
    assert_eq!(t.asked("ORD-1").await, "D2");
    let logged: (bool, i64) = sqlx::query_as("SELECT rebuild, inserted FROM reconcile_log WHERE NOT rebuild")
        .fetch_one(&t.app.core.db)
        .await
        .unwrap();
    assert_eq!(logged, (false, 1));
    t.assert_sound().await;
}

#[tokio::test]
async fn late_timer_is_moved_beyond_the_tolerance() {
    for (late_secs, moved) in [(3, 0), (4, 1)] {
        let t = TestApp::with_offer().await;
        let due_ms = t.timers().await["timeout:ORD-1:1"] + late_secs * 1000;
        t.redis::<()>(&[
            "ZADD",
            &t.app.core.store.keys().due_set(jobs::queues::DISPATCH_TIMEOUT),
            &due_ms.to_string(),
            "timeout:ORD-1:1",
        ])
        .await;
        let report = reconciler::reconcile_in_full(&t.app.maintenance).await.unwrap().unwrap();
        assert_eq!((report.moved, report.inserted), (moved, 0), "{late_secs} s late");
        let expected = if moved == 1 { due_ms - late_secs * 1000 } else { due_ms };
        assert_eq!(t.timers().await["timeout:ORD-1:1"], expected);
        t.run_for(secs(1900)).await;
        t.assert_sound().await;
    }
}

#[tokio::test]
async fn a_message_without_its_job_is_delivered_after_all() {
    let t = TestApp::start().await;
    t.order_of("ORD-1", "RENT", "UNPAID").await;
    let leased = t.take().await.remove(0);
    t.perform(&leased).await;
    t.settle(&leased, queue::Outcome::done()).await;
    assert_eq!(t.messages("ORD-1").await[0].2, "pending");
    t.advance(secs(4)).await;
    assert_eq!(reconcile(&t).await.inserted, 1);
    t.run_due().await;
    assert_eq!(t.messages("ORD-1").await[0].2, "delivered");
    // The overdue reminder is also enqueued again.
    t.advance(secs(300)).await;
    assert_eq!(reconcile(&t).await.inserted, 1);
    t.assert_sound().await;
}

#[tokio::test]
async fn expired_order_ends_without_its_job() {
    let t = TestApp::start().await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    t.advance(secs(1800 + 59)).await;
    assert_eq!(reconcile(&t).await.compensated, 0);
    t.advance(secs(2)).await;
    assert_eq!(reconcile(&t).await.compensated, 1);
    assert_eq!(t.status("ORD-1").await, OrderStatus::Compensating);
    // If compensation does not run either, the reconciler does it.
    t.advance(secs(61)).await;
    assert_eq!(reconcile(&t).await.compensated, 1);
    assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
    t.run_due().await;
    assert_eq!(t.messages_of("ORD-1", MANUAL_REFUND_REQUIRED).await, 1);
    // The checker still reports the exceeded lifetime.
    let violations = t.violations().await;
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert!(violations[0].starts_with("ended_within_lifetime: ORD-1"), "{violations:?}");
}

#[tokio::test]
async fn dry_run_lists_missing_timers_only() {
    let t = TestApp::with_offer().await;
    assert_eq!(repair::list_missing(&t.app.core).await.unwrap(), []);
    lose(&t, jobs::queues::DISPATCH_TIMEOUT, "timeout:ORD-1:1").await;
    lose(&t, jobs::queues::LIFETIME_CANCEL, "lifetime:ORD-1").await;
    let missing: Vec<_> =
        repair::list_missing(&t.app.core).await.unwrap().into_iter().map(|job| job.id.to_string()).collect();
    assert_eq!(missing, ["timeout:ORD-1:1", "lifetime:ORD-1"]);
    assert_eq!(t.timers().await.len(), 0);
    let report = reconciler::reconcile_in_full(&t.app.maintenance).await.unwrap().unwrap();
    assert_eq!(report.inserted, 2);
    t.assert_sound().await;
}
