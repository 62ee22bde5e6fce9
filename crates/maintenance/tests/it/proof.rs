//! The continuous proof finds each planted fault, names it, and reports it once.

use std::collections::BTreeSet;

use maintenance::{
    audit::OTHER_CHECKS,
    proof::{
        place, slice,
        status::{self, ProofStatus},
        violations::{self, ProofViolation},
    },
    recovery::reconciler,
};
use test_support::{TestApp, lasting_transaction, secs};

use crate::checker::{BROKEN_IN_SQL, history_to_break, reported, restore};

/// Proves everything that was committed. Returns the new violations.
async fn prove(t: &TestApp) -> usize {
    slice::run(&t.app.maintenance).await.unwrap().violations
}

async fn list_open(t: &TestApp) -> Vec<ProofViolation> {
    let listed = violations::list_violations(&t.app.core.db).await.unwrap();
    listed.into_iter().filter(|violation| violation.gone_at.is_none()).collect()
}

/// Returns the open violations: invariant and subject.
async fn named(t: &TestApp) -> BTreeSet<(String, String)> {
    list_open(t).await.into_iter().map(|violation| (violation.invariant, violation.subject)).collect()
}

async fn read_status(t: &TestApp) -> ProofStatus {
    status::read_status(&t.app.core.db).await.unwrap()
}

fn one(invariant: &str, subject: &str) -> BTreeSet<(String, String)> {
    BTreeSet::from([(invariant.to_owned(), subject.to_owned())])
}

#[tokio::test]
async fn each_planted_fault_is_found_named_and_closed() {
    let t = history_to_break().await;
    assert_eq!(prove(&t).await, 0);
    for (invariant, subject, how) in BROKEN_IN_SQL {
        t.sql(how).await;
        assert_eq!(prove(&t).await, 1, "{how}");
        let open = list_open(&t).await;
        assert_eq!(named(&t).await, one(invariant, subject), "{how}");
        // The full scan finds the same.
        assert_eq!(reported(&t).await, BTreeSet::from([(invariant, subject.to_owned())]), "{how}");
        let ProofViolation { expected, detail, order_id, event_seq, event, .. } = &open[0];
        assert!(!expected.is_empty() && !detail.is_empty(), "{how}");
        assert!(order_id.is_some() && event_seq.is_some() && event.is_some(), "{how}: {open:?}");
        // The same violation is not reported again.
        assert_eq!(prove(&t).await, 0, "{how}");
        restore(&t).await;
        assert_eq!(prove(&t).await, 0, "{how}");
        assert_eq!(named(&t).await, BTreeSet::new(), "{how}");
    }
    let folded = slice::fold_history(&t.app.maintenance).await.unwrap();
    assert_eq!(folded, []);
}

/// Faults in Redis: invariant, subject, and the commands.
const BROKEN_IN_REDIS: [(&str, &str, &[&[&str]]); 8] = [
    ("no_timer_missing", "timeout:OFFERED:1", &[&["ZREM", "{dq:0}:due:dispatch-timeout-queue", "timeout:OFFERED:1"]]),
    // The timer is due a century later.
    (
        "no_timer_missing",
        "timeout:OFFERED:1",
        &[&["ZADD", "{dq:0}:due:dispatch-timeout-queue", "5000000000000", "timeout:OFFERED:1"]],
    ),
    (
        "no_dead_job_without_reason",
        "notify:DONE:9",
        &[
            &["ZADD", "{dq:0}:dead:notify-queue", "2", "notify:DONE:9"],
            &[
                "HSET",
                "{dq:0}:dead",
                "notify:DONE:9",
                r#"{"queue":"notify-queue","error":"","failed":5,"lost":0,"due_ms":1,"died_ms":2,"payload":null}"#,
            ],
        ],
    ),
    (
        "waiting_sets_equal_rows",
        "GHOST",
        &[&["ZADD", "waiting:order:JKT:RIDE", "9999999999999", "GHOST"], &["SET", "dispatchq:waiting:complete", "1"]],
    ),
    // A slot that was counted twice, one without an end, and one whose holder is gone.
    ("slots_equal_holders", "S1", &[&["HINCRBY", "{dq:0}:slots_used", "S1", "1"]]),
    (
        "slots_equal_holders",
        "cycle:B:1",
        &[
            &["HSET", "{dq:0}:slot_holds", "cycle:B:1", "binding-queue S1 B 1000 0 0 0 w"],
            &["HSET", "{dq:0}:slot_owns", "B", "cycle:B:1"],
            &["HINCRBY", "{dq:0}:slots_used", "S1", "1"],
        ],
    ),
    (
        "slots_equal_holders",
        "{dq:0}:slots:partner:bbd",
        &[&["ZADD", "{dq:0}:slots:partner:bbd", "9999999999999", "ghost"]],
    ),
    ("slots_equal_holders", "B", &[&["HSET", "{dq:0}:slot_owns", "B", "cycle:B:1"]]),
];

#[tokio::test]
async fn each_planted_fault_in_redis_is_found_within_a_minute() {
    let t = history_to_break().await;
    for (invariant, subject, how) in BROKEN_IN_REDIS {
        prove(&t).await;
        for command in how {
            let _: redis::Value = t.redis(command).await;
        }
        let mut waited = 0;
        while named(&t).await.is_empty() {
            assert!(waited < 60, "{how:?} is not found");
            t.advance(secs(5)).await;
            waited += 5;
            prove(&t).await;
        }
        assert_eq!(named(&t).await, one(invariant, subject), "{how:?}");
        t.redis::<()>(&["FLUSHALL"]).await;
        reconciler::reconcile_once(&t.app.maintenance).await.unwrap();
        t.advance(secs(5)).await;
        prove(&t).await;
        assert_eq!(named(&t).await, BTreeSet::new(), "{how:?}");
    }
    let broken: BTreeSet<_> = BROKEN_IN_REDIS.iter().map(|(invariant, ..)| *invariant).collect();
    assert_eq!(broken, OTHER_CHECKS.into_iter().map(|(name, _)| name).collect(), "every invariant has its fault");
}

#[tokio::test]
async fn flush_of_redis_is_no_violation() {
    let t = history_to_break().await;
    prove(&t).await;
    let before = read_status(&t).await;
    t.redis::<()>(&["FLUSHALL"]).await;
    for _ in 0..6 {
        t.advance(secs(5)).await;
        prove(&t).await;
    }
    reconciler::reconcile_once(&t.app.maintenance).await.unwrap();
    t.order("AFTER").await;
    prove(&t).await;
    let after = read_status(&t).await;
    assert_eq!((after.open_violations, after.steps), (0, before.steps + 1));
    assert_eq!(after.lag_events, 0);
}

#[tokio::test]
async fn step_of_an_open_transaction_is_proven_later() {
    let t = TestApp::start().await;
    t.order("FIRST").await;
    prove(&t).await;
    // The position of this step is below that of the next one, and it is committed later.
    let mut late = lasting_transaction(&t.postgres).await;
    sqlx::query(
        "INSERT INTO order_feed (order_id, kind, status, reason, at)
         VALUES ('LATE', 'order.created', 'DISPATCHING', 'ORDER_CREATED', dispatchq_now())",
    )
    .execute(&mut *late)
    .await
    .unwrap();
    t.order("NEXT").await;
    prove(&t).await;
    assert_eq!(read_status(&t).await.steps, 1);
    late.commit().await.unwrap();
    prove(&t).await;
    let proven = read_status(&t).await;
    assert_eq!((proven.steps, proven.lag_events), (3, 0));
}

#[tokio::test]
async fn steps_of_many_pages_are_proven_in_one_run() {
    let t = TestApp::start().await;
    t.sql(
        "INSERT INTO order_feed (order_id, kind, status, reason, at)
         SELECT 'GONE-' || n, 'order.created', 'DISPATCHING', 'ORDER_CREATED', dispatchq_now()
         FROM generate_series(1, 12000) n",
    )
    .await;
    prove(&t).await;
    let proven = read_status(&t).await;
    assert_eq!((proven.steps, proven.lag_events, proven.open_violations), (12_000, 0, 0));
    assert!(proven.cpu_us > 0);
}

#[tokio::test]
async fn two_workers_prove_each_step_once() {
    let t = history_to_break().await;
    t.sql("UPDATE orders SET driver_id = 'D9' WHERE id = 'DONE'").await;
    let (a, b) = tokio::join!(slice::run(&t.app.maintenance), slice::run(&t.app.maintenance));
    let reports = [a.unwrap(), b.unwrap()];
    let steps: i64 = reports.iter().map(|report| report.steps).sum();
    assert_eq!(steps, t.count("SELECT count(*) FROM order_feed").await);
    assert_eq!(reports.iter().map(|report| report.violations).sum::<usize>(), 1);
}

#[tokio::test]
async fn restored_database_is_proven_again() {
    let t = history_to_break().await;
    prove(&t).await;
    let steps = read_status(&t).await.steps;
    t.sql("UPDATE proof_place SET position = 9000000000000000").await;
    prove(&t).await;
    assert_eq!(read_status(&t).await.steps, 2 * steps);
}

#[tokio::test]
async fn walk_of_another_version_starts_again() {
    let t = history_to_break().await;
    t.sql("UPDATE proof_place SET walk = '{\"open_orders\": 7}'").await;
    assert_eq!(prove(&t).await, 0);
    assert_eq!(place::load_place(&t.app.core.db).await.unwrap().slices, 1);
}

/// Orders of five seconds at 300 orders a second.
const ORDERS: i64 = 1500;
/// Cancels all open orders in SQL, as the program would.
const CANCEL_ALL: &str = "
    INSERT INTO order_events (order_id, from_status, to_status, reason, actor, at)
    SELECT id, status, 'CANCELLED_BY_USER', 'CANCELLED_BY_USER', 'producer:test', dispatchq_now() FROM orders;
    INSERT INTO order_feed (order_id, kind, status, from_status, reason, at)
    SELECT id, 'order.cancelled', 'CANCELLED_BY_USER', status, 'CANCELLED_BY_USER', dispatchq_now() FROM orders;
    UPDATE orders SET status = 'CANCELLED_BY_USER', closed_at = dispatchq_now(), next_attempt_at = NULL";

#[tokio::test]
async fn fold_uses_a_tenth_of_a_millisecond_an_order() {
    let t = TestApp::start().await;
    let create = "SELECT dispatchq_create_order('ORD-' || n, 'RIDE', -6.2, 106.8) FROM generate_series(1, 1500) n";
    t.sql(create).await;
    reconciler::reconcile_in_full(&t.app.maintenance).await.unwrap();
    prove(&t).await;
    t.sql(CANCEL_ALL).await;
    prove(&t).await;
    let ProofStatus { steps, cpu_us, open_violations, .. } = read_status(&t).await;
    assert_eq!((steps, open_violations), (2 * ORDERS, 0));
    assert!(cpu_us <= 100 * ORDERS, "{} us an order", cpu_us / ORDERS);
    let size = t.count("SELECT octet_length(walk::text)::bigint FROM proof_place").await;
    assert!(size <= 1000, "{size} bytes");
}
