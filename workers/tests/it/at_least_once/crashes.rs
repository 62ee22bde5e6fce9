//! Processes that die between two steps.

use std::collections::HashSet;

use maintenance::recovery::{reconciler, repair};
use model::{
    messages::{MANUAL_REFUND_REQUIRED, OFFER},
    order::OrderStatus,
};
use queue::store::SettleVerdict;
use test_support::{TestApp, ids, secs};

/// Point at which a worker dies while it runs a job.
#[derive(Clone, Copy)]
enum Crash {
    BeforeCommit,
    AfterCommit,
}

/// Runs jobs until none is due. The worker dies at the first delivery of each job.
async fn run_crashing(t: &TestApp, crash: Crash, crashed: &mut HashSet<String>) {
    loop {
        let mut lost = false;
        loop {
            let jobs = t.take().await;
            if jobs.is_empty() {
                break;
            }
            for leased in jobs {
                if crashed.insert(leased.delivery.id.to_string()) {
                    if matches!(crash, Crash::AfterCommit) {
                        t.perform(&leased).await;
                    }
                    lost = true;
                } else {
                    let outcome = t.perform(&leased).await;
                    t.settle(&leased, outcome).await;
                }
            }
        }
        if !lost {
            return;
        }
        t.outlive_leases().await;
    }
}

#[tokio::test]
async fn every_job_heals_what_its_worker_left_half_done() {
    for crash in [Crash::BeforeCommit, Crash::AfterCommit] {
        let t = TestApp::start().await;
        let mut crashed = HashSet::new();
        t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
        t.order_of("ORD-1", "RIDE", "PAID").await;
        run_crashing(&t, crash, &mut crashed).await;
        assert_eq!(t.asked("ORD-1").await, "D1");
        assert_eq!(repair::list_missing(&t.app.core).await.unwrap(), []);
        t.decline_offer("ORD-1").await;
        run_crashing(&t, crash, &mut crashed).await;
        assert_eq!(t.asked("ORD-1").await, "D2");
        assert_eq!(repair::list_missing(&t.app.core).await.unwrap(), []);
        while let Some(next_ms) = t.next_due_ms().await {
            t.move_clock_to(next_ms.max(t.now_ms())).await;
            run_crashing(&t, crash, &mut crashed).await;
            assert_eq!(repair::list_missing(&t.app.core).await.unwrap(), []);
        }
        let kinds: HashSet<_> = crashed.iter().filter_map(|id| id.split(':').next()).collect();
        assert_eq!(kinds.len(), 6, "every kind of job crashed: {kinds:?}");

        assert_eq!(t.status("ORD-1").await, OrderStatus::CancelledBySystemAfterPayment);
        assert_eq!(t.messages_of("ORD-1", MANUAL_REFUND_REQUIRED).await, 1);
        let offers = t.offers("ORD-1").await.len();
        assert_eq!(t.messages_of("ORD-1", OFFER).await, offers);
        assert_eq!(t.count("SELECT count(*) FROM outbox WHERE state = 'pending'").await, 0);
        t.assert_sound().await;
    }
}

#[tokio::test]
async fn an_order_whose_creator_died_before_enqueueing_is_picked_up() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.sql("SELECT dispatchq_create_order('ORD-1', 'RIDE', -6.2088, 106.8456)").await;
    assert_eq!(ids(&t.run_due().await), Vec::<&str>::new());
    t.advance(secs(4)).await;
    let report = reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap();
    assert_eq!((report.rebuild, report.inserted), (false, 2));
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "D1");
    t.assert_sound().await;
}

#[tokio::test]
async fn a_worker_that_lost_its_lease_cannot_settle_it() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    let frozen = t.take().await.remove(0);
    assert_eq!(frozen.delivery.id.as_str(), "dispatch:ORD-1:1");
    t.outlive_leases().await;
    t.run_due().await;

    // The frozen worker wakes up, runs the job again, and reports a result, which is refused.
    let (rows, timers) = (t.dump().await, t.timers().await);
    let outcome = t.perform(&frozen).await;
    assert_eq!(t.settle(&frozen, outcome).await, SettleVerdict::Refused);
    assert_eq!((t.dump().await, t.timers().await), (rows, timers));
    t.assert_sound().await;
}
