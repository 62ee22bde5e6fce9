//! Cleanup and erasure while the proof follows, while it is stopped, and while a violation is open.

use std::time::Duration;

use desk::privacy::{self, ErasureOutcome, ErasureRecord, ErasureSubject};
use foundation::db;
use maintenance::{
    periodic::cleanup::{self, CleanupMode},
    proof::slice,
};
use settings::{ScheduledTask, TaskSchedule};
use test_support::{TestApp, by, secs};

const DAY: Duration = Duration::from_secs(24 * 3600);
const OPEN: &str = "SELECT invariant || ' ' || subject FROM proof_violations WHERE gone_at IS NULL ORDER BY 1";

/// Starts with the periodic proof. The driver D1 has carried out the order OLD.
async fn with_old_order() -> TestApp {
    let t = TestApp::with(|config| {
        config.schedules = [(ScheduledTask::Proof, TaskSchedule::Every(secs(5)))].into();
    })
    .await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("OLD").await;
    t.run_due().await;
    t.accept_offer("OLD").await;
    t.carry_out("OLD", "D1").await;
    t.sql("UPDATE outbox SET state = 'delivered' WHERE state = 'pending'").await;
    t
}

async fn clean_up(t: &TestApp) -> u64 {
    cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap().orders
}

async fn prove(t: &TestApp) {
    slice::run(&t.app.maintenance).await.unwrap();
}

async fn erase_driver(t: &TestApp, driver: &str) {
    let now = db::database_now(&t.app.core.db).await.unwrap();
    let erasure = ErasureRecord::new(ErasureSubject::Driver, driver, "asked", &by("operator:test"), now);
    let done = privacy::erase_subject(&t.app.core, &erasure).await.unwrap();
    assert!(matches!(done, ErasureOutcome::Done { .. }), "{done:?}");
}

#[tokio::test]
async fn cleanup_does_not_wait_for_a_current_proof() {
    let t = with_old_order().await;
    t.advance(DAY * 366).await;
    prove(&t).await;
    assert_eq!(clean_up(&t).await, 1);
    erase_driver(&t, "D1").await;
    assert_eq!(t.texts(OPEN).await, Vec::<String>::new());
}

#[tokio::test]
async fn cleanup_waits_seven_days_for_a_stopped_proof() {
    let t = with_old_order().await;
    // The proof stopped before the order.
    t.sql("UPDATE proof_place SET proven_at = dispatchq_now() - interval '1 minute'").await;
    t.advance(DAY * 366).await;
    assert_eq!(clean_up(&t).await, 0);
    // Other rows do not wait.
    assert_eq!(t.count("SELECT count(*) FROM rankings").await, 0);
    assert_eq!(t.texts(OPEN).await, Vec::<String>::new());
    t.advance(DAY * 7).await;
    assert_eq!(clean_up(&t).await, 1);
    assert_eq!(t.texts(OPEN).await, ["removed_before_proof cleanup"]);
    erase_driver(&t, "D1").await;
    t.advance(secs(5)).await;
    prove(&t).await;
    assert_eq!(t.texts(OPEN).await, Vec::<String>::new(), "the proof follows again");
}

#[tokio::test]
async fn cleanup_does_not_wait_for_an_open_violation() {
    let t = with_old_order().await;
    t.sql("UPDATE orders SET driver_id = 'D9' WHERE id = 'OLD'").await;
    prove(&t).await;
    assert_eq!(t.texts(OPEN).await, ["the_driver_accepted OLD"]);
    t.advance(DAY * 366).await;
    prove(&t).await;
    assert_eq!(clean_up(&t).await, 1);
    prove(&t).await;
    assert_eq!(t.texts(OPEN).await, Vec::<String>::new(), "the violation goes with its order");
}

#[tokio::test]
async fn erased_driver_leaves_no_trace_in_violations() {
    let t = with_old_order().await;
    t.sql(
        "UPDATE orders SET driver_id = 'D9' WHERE id = 'OLD';
         INSERT INTO proof_violations (invariant, subject, detail, step, found_at, seen_at)
         SELECT v.invariant, v.subject, v.detail, 0, now, now FROM dispatchq_now() AS now,
                (VALUES ('one_active_order_per_driver', 'D9', 'A, B'),
                        ('the_driver_accepted', 'X', 'driver D90 never accepted')) v (invariant, subject, detail)",
    )
    .await;
    prove(&t).await;
    assert_eq!(t.count("SELECT count(*) FROM proof_violations WHERE detail = 'driver D9 never accepted'").await, 1);
    erase_driver(&t, "D9").await;
    prove(&t).await;
    let kept = t.texts("SELECT subject || ': ' || detail FROM proof_violations ORDER BY 1").await;
    let names_driver = |text: &&String| text.split([' ', ':', ',']).any(|word| word == "D9");
    assert_eq!(kept.iter().filter(names_driver).count(), 0, "{kept:?}");
    assert!(kept.contains(&"X: driver D90 never accepted".to_owned()), "{kept:?}");
}

#[tokio::test]
async fn slice_before_an_erasure_stores_no_erased_driver() {
    let t = with_old_order().await;
    erase_driver(&t, "D9").await;
    // As if the slice had read the order before the erasure.
    t.sql("UPDATE orders SET driver_id = 'D9' WHERE id = 'OLD'").await;
    prove(&t).await;
    assert_eq!(t.count("SELECT count(*) FROM proof_violations").await, 0);
}

#[tokio::test]
async fn cleanup_without_the_periodic_proof_waits_for_nothing() {
    let t = with_old_order().await;
    t.sql("UPDATE proof_place SET proven_at = dispatchq_now() - interval '1 minute'").await;
    t.advance(DAY * 366).await;
    let app = t.reconfigured(|config| config.schedules.clear());
    assert_eq!(cleanup::run(&app.maintenance, CleanupMode::Remove).await.unwrap().orders, 1);
}
