//! The proof of the history in real processes: a worker dies in a slice, and another one continues.

use super::orders;
use crate::support::{Fleet, eventually};

const LAG: &str = "SELECT count(*) FROM order_feed f, proof_place p WHERE (f.position, f.seq) > (p.position, p.seq)";
const OPEN: &str = "SELECT count(*) FROM proof_violations WHERE gone_at IS NULL";

/// Prepares a history with a violation that only the proof of `DONE-0` can find, and waits for the end of all orders.
async fn broken_history() -> Fleet {
    let fleet = Fleet::with("2s", "[schedules]\nproof = { every = \"1s\" }\n").await;
    orders(&fleet, "DONE", 8).await;
    let mut worker = fleet.worker_with("first", &[("DISPATCHQ_SCHEDULES__PROOF__EVERY", "300days")]);
    fleet.at_rest().await;
    worker.kill();
    let delete = "DELETE FROM order_events WHERE order_id = 'DONE-0' AND reason = 'ORDER_CREATED'";
    fleet.postgres.run_statement(delete).await.unwrap();
    fleet
}

async fn workers_die_and_continue(point: &str, recorded_before: bool) {
    let fleet = broken_history().await;
    let mut doomed = fleet.worker_with("doomed", &[("CRASH_AT", point)]);
    assert!(!doomed.ended().await.success());
    assert!(doomed.log().contains(&format!("CRASH_AT={point}")), "{}", doomed.log());
    assert_eq!(fleet.count("SELECT slices FROM proof_place").await, i64::from(recorded_before));
    assert_eq!(fleet.count(OPEN).await, i64::from(recorded_before));

    let _worker = fleet.running_worker("next").await;
    eventually("the fold is current", async || fleet.count(LAG).await == 0 && fleet.count(OPEN).await == 1).await;
    let slices = fleet.count("SELECT slices FROM proof_place").await;
    fleet.reach(slices + 2, "SELECT slices FROM proof_place").await;
    // No step was skipped or proven twice, and the violation has one row.
    assert_eq!(fleet.count("SELECT p.steps - (SELECT count(*) FROM order_feed) FROM proof_place p").await, 0);
    assert_eq!(fleet.count("SELECT count(*) FROM proof_violations WHERE subject = 'DONE-0'").await, 1);
    assert_eq!(fleet.count("SELECT count(*) FROM proof_violations").await, 1);
}

#[tokio::test]
async fn slice_of_a_worker_that_died_is_repeated() {
    workers_die_and_continue("proof.checked", false).await;
}

#[tokio::test]
async fn recorded_slice_of_a_dead_worker_is_kept() {
    workers_die_and_continue("proof.recorded", true).await;
}
