//! What is owed or still open stays; a sweep that fails keeps no other from its work.

use std::time::Duration;

use dispatch::periodic::{cleanup, tick};
use jobs::PeriodicTick;
use workers::Outcome;

use crate::support::{TestApp, secs};

const DAY: Duration = Duration::from_secs(24 * 3600);
const ORDERS: &str = "SELECT id FROM orders ORDER BY id";

#[tokio::test]
async fn f18_owed_refunds_and_open_alerts_outlive_retention() {
    let t = TestApp::start().await;
    t.order_of("OWED", "RIDE", "PAID").await;
    for order in ["ALERTED", "BEGUN", "DONE"] {
        t.order(order).await;
    }
    for order in ["OWED", "ALERTED", "BEGUN", "DONE"] {
        t.cancel(order).await.unwrap();
    }
    t.sql(
        "UPDATE orders SET status = 'REFUND_PENDING', payment_status = 'PAID' WHERE id = 'BEGUN';
           UPDATE alerts SET acked_at = raised_at, acked_by = 'x', next_escalation_at = NULL;
           UPDATE outbox SET state = 'delivered';
           INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at)
           VALUES ('ALERTED', 'UNEXPECTED_STATE', '', '{}', dispatchq_now())",
    )
    .await;
    t.advance(DAY * 3000).await;
    assert_eq!(cleanup::run(&t.app, cleanup::CleanupMode::DryRun).await.unwrap().orders, 1);
    assert_eq!(cleanup::run(&t.app, cleanup::CleanupMode::Remove).await.unwrap().orders, 1);
    assert_eq!(t.texts(ORDERS).await, ["ALERTED", "BEGUN", "OWED"]);
    assert_eq!(t.texts("SELECT order_id FROM alerts WHERE acked_at IS NULL").await, ["ALERTED"]);

    t.sql(
        "UPDATE alerts SET acked_at = raised_at, acked_by = 'x', next_escalation_at = NULL;
           UPDATE orders SET status = 'REFUNDED' WHERE id = 'BEGUN'",
    )
    .await;
    assert_eq!(cleanup::run(&t.app, cleanup::CleanupMode::Remove).await.unwrap().orders, 2);
    assert_eq!(t.texts(ORDERS).await, ["OWED"], "its refund has not even begun");
}

/// More than a batch that may not go lies before what may.
#[tokio::test]
async fn f18_what_may_not_go_hides_nothing_behind_it() {
    let t = TestApp::start().await;
    t.sql("INSERT INTO orders (id, service_type, pickup_lat, pickup_lng, status, lifetime_deadline, created_at, updated_at, closed_at)
           SELECT 'O' || lpad(n::text, 5, '0'), 'RIDE', 0, 0, 'CANCELLED_BY_SYSTEM', at, at, at, at
           FROM generate_series(1, 3200) n, LATERAL (SELECT dispatchq_now() + n * interval '1 ms' AS at) x;
           INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at)
           SELECT id, 'UNEXPECTED_STATE', '', '{}', closed_at FROM orders WHERE id <= 'O02500'")
        .await;
    t.advance(DAY * 366).await;
    assert_eq!(cleanup::run(&t.app, cleanup::CleanupMode::DryRun).await.unwrap().orders, 700);
    assert_eq!(cleanup::run(&t.app, cleanup::CleanupMode::Remove).await.unwrap().orders, 700);
    assert_eq!(t.count("SELECT count(*) FROM orders").await, 2500);
}

#[tokio::test]
async fn f05_a_slow_sweep_is_seen_and_keeps_no_other_from_its_work() {
    let t = TestApp::with(|config| config.database.statement_timeout = secs(3)).await;
    t.order("ORD-1").await;
    t.sql(
        "INSERT INTO rankings (order_id, attempt_no, at, candidates) VALUES ('ORD-1', 1, dispatchq_now(), '[]');
           INSERT INTO idempotency_keys (api_key_id, key, request_hash, work_id)
           VALUES (gen_random_uuid(), 'k', '', gen_random_uuid());
           CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN OLD; END $$;
           CREATE TRIGGER slow BEFORE DELETE ON rankings FOR EACH ROW EXECUTE FUNCTION slow()",
    )
    .await;
    t.advance(DAY * 31).await;
    let job = PeriodicTick { schedule: "cleanup".to_owned(), slot: i64::try_from(t.now_ms() / 1000).unwrap() };
    // It spends a try, and so it is given up, and seen, if it stays so.
    match tick::perform_tick(t.app.clone(), job.clone()).await {
        Outcome::Retry(why) => assert!(why.contains("rankings: ") && why.contains("statement timeout"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(t.count("SELECT count(*) FROM rankings").await, 1);
    assert_eq!(t.count("SELECT count(*) FROM idempotency_keys").await, 0, "a sweep behind it did its work");
    assert_eq!(t.count("SELECT count(*) FROM schedule_runs WHERE finished_at IS NOT NULL").await, 0);

    t.sql("DROP TRIGGER slow ON rankings").await;
    assert!(matches!(tick::perform_tick(t.app.clone(), job).await, Outcome::Done { .. }));
    assert_eq!(t.count("SELECT count(*) FROM rankings").await, 0);
}
