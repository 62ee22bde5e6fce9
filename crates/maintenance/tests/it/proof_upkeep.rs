//! Cleanup and erasure while the proof follows, while it is stopped, and while a violation is open.

use std::{collections::BTreeSet, time::Duration};

use desk::privacy::{self, ErasureOutcome, ErasureRecord, ErasureSubject};
use foundation::db;
use maintenance::{
    periodic::cleanup::{self, CleanupMode},
    proof::{invariants::check_in_parts, slice, violations},
};
use orders::create::NewOrder;
use settings::{ScheduledTask, TaskSchedule};
use test_support::{TestApp, by, secs};

const DAY: Duration = Duration::from_secs(24 * 3600);
const OPEN: &str = "SELECT invariant || ' ' || subject FROM proof_violations WHERE gone_at IS NULL ORDER BY 1";

/// Starts with the periodic proof. The driver D1 has carried out the order OLD of the customer C1, with a note.
async fn with_old_order() -> TestApp {
    let t = TestApp::with(|config| {
        config.schedules = [(ScheduledTask::Proof, TaskSchedule::Every(secs(5)))].into();
    })
    .await;
    t.drivers(&[("D1", 100.0)]).await;
    let of_customer = |new: &mut NewOrder| {
        new.customer_id = Some("C1".into());
        new.notes = Some("ring twice".into());
    };
    t.create("OLD", of_customer).await.unwrap();
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
    erase(t, ErasureSubject::Driver, driver).await;
}

async fn erase(t: &TestApp, subject: ErasureSubject, id: &str) {
    let now = db::database_now(&t.app.core.db).await.unwrap();
    let erasure = ErasureRecord::new(subject, id, "asked", &by("operator:test"), now);
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
async fn customer_is_erased_in_every_state_of_the_proof() {
    let current = "SELECT 1";
    let stopped = "UPDATE proof_place SET proven_at = dispatchq_now() - interval '8 days'";
    let violated = "UPDATE orders SET driver_id = 'D9' WHERE id = 'OLD'";
    for (state, open) in [(current, 0), (stopped, 0), (violated, 1)] {
        let t = with_old_order().await;
        prove(&t).await;
        t.sql(state).await;
        if state == violated {
            prove(&t).await;
        }
        erase(&t, ErasureSubject::Customer, "C1").await;
        let left = t.count("SELECT count(*) FROM order_details d WHERE d::text LIKE '%ring twice%'").await;
        assert_eq!(left, 0, "{state}");
        prove(&t).await;
        assert_eq!(t.texts(OPEN).await.len(), open, "{state}");
    }
}

#[tokio::test]
async fn violations_stay_counted_when_retention_removes_them() {
    let t = with_old_order().await;
    t.sql("UPDATE orders SET driver_id = 'D9' WHERE id = 'OLD'").await;
    prove(&t).await;
    prove(&t).await;
    t.sql("DELETE FROM proof_violations").await;
    prove(&t).await;
    let counted = violations::count_by_invariant(&t.app.core.db).await.unwrap();
    assert_eq!(counted["the_driver_accepted"], 2);
}

#[tokio::test]
async fn slow_check_is_repeated_for_each_half() {
    let t = TestApp::start().await;
    // Postgres ends the statement as if it were too slow, unless it has one subject.
    let check = async |ids: &[&str]| {
        sqlx::query_as("SELECT 'x', id, 'y' FROM unnest($1::text[]) id WHERE cardinality($1) = 1 OR pg_cancel_backend(pg_backend_pid())")
            .bind(ids)
            .fetch_all(&t.app.core.db)
            .await
    };
    let rows = check_in_parts(&["A", "B", "C"], check).await.unwrap();
    assert_eq!(rows.iter().map(|(_, id, _)| id.as_str()).collect::<BTreeSet<_>>(), ["A", "B", "C"].into());
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
