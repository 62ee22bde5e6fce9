//! Unpaid refunds and open items are kept. A failed sweep does not stop the others.

use std::time::Duration;

use jobs::PeriodicTick;

use maintenance::periodic::cleanup;
use queue::Outcome;
use test_support::{TestApp, secs};
use workers::tick;

const DAY: Duration = Duration::from_secs(24 * 3600);
const ORDERS: &str = "SELECT id FROM orders ORDER BY id";

// Fault F18
#[tokio::test]
async fn owed_refunds_and_open_alerts_outlive_retention() {
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
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::DryRun).await.unwrap().orders, 1);
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap().orders, 1);
    assert_eq!(t.texts(ORDERS).await, ["ALERTED", "BEGUN", "OWED"]);
    assert_eq!(t.texts("SELECT order_id FROM alerts WHERE acked_at IS NULL").await, ["ALERTED"]);

    t.sql(
        "UPDATE alerts SET acked_at = raised_at, acked_by = 'x', next_escalation_at = NULL;
           UPDATE orders SET status = 'REFUNDED' WHERE id = 'BEGUN'",
    )
    .await;
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap().orders, 2);
    assert_eq!(t.texts(ORDERS).await, ["OWED"], "its refund has not even begun");
}

// Fault F18
/// More rows than a batch that must be kept come before the rows that can be removed.
#[tokio::test]
async fn what_may_not_go_hides_nothing_behind_it() {
    let t = TestApp::start().await;
    t.sql("INSERT INTO orders (id, service_type, pickup_lat, pickup_lng, status, lifetime_deadline, created_at, updated_at, closed_at)
           SELECT 'O' || lpad(n::text, 5, '0'), 'RIDE', 0, 0, 'CANCELLED_BY_SYSTEM', at, at, at, at
           FROM generate_series(1, 3200) n, LATERAL (SELECT dispatchq_now() + n * interval '1 ms' AS at) x;
           INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at)
           SELECT id, 'UNEXPECTED_STATE', '', '{}', closed_at FROM orders WHERE id <= 'O02500'")
        .await;
    t.advance(DAY * 366).await;
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::DryRun).await.unwrap().orders, 700);
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap().orders, 700);
    assert_eq!(t.count("SELECT count(*) FROM orders").await, 2500);
}

/// Each transaction has one call. The first one of LONG was settled after all others had been made.
const BINDINGS: &str = "
    INSERT INTO provider_servers (id, provider, base_url, changed_by) VALUES ('S1', 'p', 'http://x', 'me');
    INSERT INTO bindings (id, server_id, account_id, config, cycle, call_no, unresolved, created_at, updated_at, deleted_at)
        SELECT id, 'S1', 'A', '{}', cycle, calls, unresolved, dispatchq_now(), dispatchq_now(),
               CASE WHEN gone THEN dispatchq_now() END
        FROM (VALUES ('LONG', 300, 301, 0, false), ('OWED', 3, 3, 1, false), ('GAP', 4, 4, 0, false),
                     ('GONE', 2, 2, 0, true), ('NEVER', 0, 0, 0, true)) b (id, cycle, calls, unresolved, gone);
    INSERT INTO transactions (trx_id, binding_id, cycle, server_id, account_id, status, settle_at, started_at, ended_at)
        SELECT b.id || '.' || n, b.id, n, 'S1', 'A', CASE WHEN owed THEN 'UNRESOLVED' ELSE 'SUKSES' END,
               CASE WHEN owed THEN at END, at, CASE WHEN NOT owed THEN at END
        FROM bindings b, generate_series(1, b.cycle) n,
             LATERAL (SELECT dispatchq_now() + n * interval '1 second' AS at, b.id = 'OWED' AND n = 2 AS owed) x;
    INSERT INTO transaction_snapshots (binding_id, cycle, call_no, part, at, action, fence, call_until)
        SELECT binding_id, cycle, cycle, 'claim', started_at, 'start', cycle, started_at FROM transactions
        UNION ALL SELECT 'LONG', 1, 301, 'claim', dispatchq_now(), 'settle', 301, dispatchq_now();
    INSERT INTO transaction_snapshots (binding_id, cycle, call_no, part, at, result)
        SELECT binding_id, cycle, call_no, 'end', at, 'success' FROM transaction_snapshots;
    INSERT INTO binding_events (binding_id, at, kind, actor) VALUES ('LONG', dispatchq_now(), 'started', 'anna')";

// Fault F18
#[tokio::test]
async fn of_each_binding_the_first_final_transactions_go() {
    let t = TestApp::start().await;
    t.sql(BINDINGS).await;
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap().transactions, 0);
    t.advance(DAY * 91).await;
    let report = cleanup::run(&t.app.maintenance, cleanup::CleanupMode::DryRun).await.unwrap();
    assert_eq!((report.transactions, report.bindings), (299 + 1 + 3 + 2, 1));

    // A missing row does not count as removed.
    t.sql("DELETE FROM transactions WHERE trx_id = 'GAP.2'").await;
    let report = cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap();
    assert_eq!((report.transactions, report.bindings), (299 + 1 + 1 + 2, 2));
    let left = t.texts("SELECT trx_id FROM transactions ORDER BY trx_id").await;
    assert_eq!(left, ["GAP.3", "GAP.4", "LONG.300", "OWED.2", "OWED.3"]);
    let watermarks =
        "SELECT binding_id || ' ' || removed_through || ' ' || calls_removed FROM binding_watermarks ORDER BY 1";
    assert_eq!(t.texts(watermarks).await, ["GAP 1 1", "LONG 299 300", "OWED 1 1"]);
    assert_eq!(t.count("SELECT count(*) FROM transaction_snapshots WHERE binding_id = 'LONG'").await, 2);
    assert_eq!(t.texts("SELECT id FROM bindings ORDER BY id").await, ["GAP", "LONG", "OWED"], "those ids are free");
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap().transactions, 0);

    t.sql(
        "UPDATE transactions SET status = 'SUKSES', settle_at = NULL, ended_at = dispatchq_now() WHERE trx_id = 'OWED.2';
         UPDATE bindings SET unresolved = 0 WHERE id = 'OWED'",
    )
    .await;
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap().transactions, 1);
    assert_eq!(t.texts(watermarks).await, ["GAP 1 1", "LONG 299 300", "OWED 2 2"]);
    assert_eq!(t.count("SELECT count(*) FROM binding_events").await, 1);
    t.advance(DAY * 310).await;
    cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap();
    assert_eq!(t.count("SELECT count(*) FROM binding_events").await, 0);
    assert_eq!(t.count("SELECT count(*) FROM transactions").await, 4, "the newest stay, and what is behind a gap");
}

// Fault F18
#[tokio::test]
async fn binding_messages_expire_by_age_or_deletion() {
    let t = TestApp::start().await;
    t.sql(BINDINGS).await;
    t.sql(
        "INSERT INTO outbox (order_id, binding_id, kind, channel, dedupe_key, payload, state, next_attempt_at, expires_at,
                             created_at)
         SELECT '__binding__', b.id, 'OTP_WANTED', 'log', b.id || s.word, '{}', s.word, now, now, now
         FROM bindings b, (VALUES ('pending'), ('delivered')) s (word), dispatchq_now() now WHERE b.id IN ('LONG', 'NEVER')",
    )
    .await;
    let left = "SELECT binding_id || ' ' || state FROM outbox ORDER BY 1";
    t.advance(DAY * 29).await;
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap().messages, 0);
    t.advance(DAY * 2).await;
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::DryRun).await.unwrap().messages, 2);
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap().messages, 2);
    assert_eq!(t.texts(left).await, ["LONG pending", "NEVER pending"]);
    t.advance(DAY * 60).await;
    cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap();
    assert_eq!(t.texts(left).await, ["LONG pending"], "the id of the other may be given again");
}

// Fault F18
#[tokio::test]
async fn binding_alerts_expire_once_acknowledged_or_deleted() {
    let t = TestApp::start().await;
    t.sql(BINDINGS).await;
    t.sql(
        "INSERT INTO alerts (order_id, binding_id, kind, dedupe_key, payload, raised_at, acked_at, acked_by)
         SELECT '__binding__', b.id, 'TRANSACTION_UNRESOLVED', b.id || ' ' || s.word, '{}', now,
                CASE WHEN s.word = 'done' THEN now END, CASE WHEN s.word = 'done' THEN 'x' END
         FROM bindings b, (VALUES ('open'), ('done')) s (word), dispatchq_now() now WHERE b.id IN ('LONG', 'NEVER')",
    )
    .await;
    let left = "SELECT dedupe_key FROM alerts ORDER BY 1";
    t.advance(DAY * 29).await;
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap().messages, 0);
    t.advance(DAY * 2).await;
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::DryRun).await.unwrap().messages, 2);
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap().messages, 2);
    assert_eq!(t.texts(left).await, ["LONG open", "NEVER open"]);
    t.advance(DAY * 60).await;
    cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap();
    assert_eq!(t.texts(left).await, ["LONG open"], "the id of the other may be given again");
}

// Fault F5
/// Old steps of many transactions fill more than one page and precede recent steps.
#[tokio::test]
async fn a_dry_run_counts_the_steps_that_are_removed() {
    let t = TestApp::start().await;
    for (transaction, days) in [("T1", 3000), ("T2", 2900), ("T3", 2800), ("T4", 1)] {
        t.sql(&format!(
            "INSERT INTO order_feed (order_id, kind, status, reason, at)
             SELECT '{transaction}-' || n, 'order.created', 'DISPATCHING', 'ORDER_CREATED', dispatchq_now() - interval '{days} days'
             FROM generate_series(1, 700) n"
        ))
        .await;
    }
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::DryRun).await.unwrap().records, 2100);
    assert_eq!(t.count("SELECT count(*) FROM order_feed").await, 2800, "a dry run removes nothing");
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::Remove).await.unwrap().records, 2100);
    assert_eq!(t.texts("SELECT DISTINCT left(order_id, 2) FROM order_feed").await, ["T4"]);
    assert_eq!(cleanup::run(&t.app.maintenance, cleanup::CleanupMode::DryRun).await.unwrap().records, 0);
}

// Fault F5
#[tokio::test]
async fn slow_sweep_fails_alone_and_visibly() {
    let t = TestApp::with(|config| config.database.statement_timeout = secs(3)).await;
    t.order("ORD-1").await;
    t.sql(
        "INSERT INTO rankings (order_id, attempt_no, at) VALUES ('ORD-1', 1, dispatchq_now());
           INSERT INTO idempotency_keys (holder_id, key, request_hash, work_id)
           VALUES (gen_random_uuid(), 'k', '', gen_random_uuid());
           CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN OLD; END $$;
           CREATE TRIGGER slow BEFORE DELETE ON rankings FOR EACH ROW EXECUTE FUNCTION slow()",
    )
    .await;
    t.advance(DAY * 31).await;
    let job = PeriodicTick { schedule: "cleanup".to_owned(), slot: i64::try_from(t.now_ms() / 1000).unwrap() };
    // The failure costs a try. If it persists, the job becomes dead and visible.
    match tick::perform_tick(t.app.maintenance.clone(), job.clone()).await {
        Outcome::Retry(why) => assert!(why.contains("rankings: ") && why.contains("statement timeout"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(t.count("SELECT count(*) FROM rankings").await, 1);
    assert_eq!(t.count("SELECT count(*) FROM idempotency_keys").await, 0, "a sweep behind it did its work");
    assert_eq!(t.count("SELECT count(*) FROM schedule_runs WHERE finished_at IS NOT NULL").await, 0);

    t.sql("DROP TRIGGER slow ON rankings").await;
    assert!(matches!(tick::perform_tick(t.app.maintenance.clone(), job).await, Outcome::Done { .. }));
    assert_eq!(t.count("SELECT count(*) FROM rankings").await, 0);
}
