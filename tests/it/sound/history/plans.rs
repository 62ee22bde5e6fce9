//! What every sweep and every look costs does not grow with the tables: the planner chooses an index by itself.

use std::{fs, path::Path};

use dispatch::periodic::cleanup::SWEEPS;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::support::TestApp;

/// Rows of each table. A few percent of them have served their time.
const FILL: &str = "
    SET session_replication_role = replica;
    CREATE TEMP TABLE n AS SELECT n, 'O' || lpad(n::text, 6, '0') AS id, dispatchq_now() - n * interval '30 minutes' AS at
        FROM generate_series(1, 20000) n;
    INSERT INTO orders (id, service_type, area_id, pickup_lat, pickup_lng, payment_status, status, lifetime_deadline,
                        created_at, updated_at, closed_at)
        SELECT id, 'RIDE', 'A' || n % 50, 0, 0, CASE WHEN n % 200 = 1 THEN 'PAID' ELSE 'UNPAID' END,
               CASE WHEN n % 40 = 0 THEN 'DISPATCHING' ELSE 'CANCELLED_BY_USER' END, at + interval '1 year', at, at,
               CASE WHEN n % 40 <> 0 THEN at END FROM n;
    INSERT INTO offers (id, order_id, attempt_no, round, driver_id, state, offered_at, expires_at)
        SELECT gen_random_uuid(), id, 1, 1, 'D' || n, 'expired', at, at FROM n;
    INSERT INTO bookings (order_id, attempt_no, partner, state, created_at, closed_at) SELECT id, 1, 'p', 'refused', at, at FROM n;
    INSERT INTO payment_events (order_id, event_id, payment_status, received_at) SELECT id, 'e', 'PAID', at FROM n;
    INSERT INTO inbox (partner, event_id, order_id, body, state, received_at)
        SELECT 'p', 'e' || n, CASE WHEN n % 10 > 0 THEN id END, '{}', CASE WHEN n % 10 > 0 THEN 'processed' ELSE 'unmatched' END, at FROM n;
    INSERT INTO outbox (order_id, kind, channel, dedupe_key, payload, state, next_attempt_at, expires_at, created_at)
        SELECT id, CASE WHEN n % 3 = 0 THEN 'OFFER' ELSE 'NEWS' END, 'log', '', '{}',
               CASE WHEN n % 100 = 0 THEN 'pending' ELSE 'delivered' END, at, at, at FROM n;
    INSERT INTO outbox_attempts (outbox_id, attempt_no, at) SELECT id, 1, created_at FROM outbox;
    INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at, acked_at, acked_by)
        SELECT id, CASE WHEN n % 20 = 0 THEN 'FAILED_TO_GET_ORDER' ELSE 'DISPATCH_FAILED' END, '', '{}', at, at, 'x' FROM n;
    INSERT INTO order_events_kept (seq, order_id, to_status, reason, actor, at) SELECT n, id, 'COMPLETED', 'COMPLETED', 'x', at FROM n;
    INSERT INTO rankings (order_id, attempt_no, at, candidates) SELECT id, 1, at, '[]' FROM n;
    INSERT INTO admission_audit (at, actor, what) SELECT at, 'x', 'flag' FROM n;
    INSERT INTO idempotency_keys (api_key_id, key, request_hash, work_id, created_at)
        SELECT gen_random_uuid(), id, '', gen_random_uuid(), at FROM n;
    INSERT INTO erasures (subject, subject_id, reason, actor, erased_at) SELECT 'customer', id, 'x', 'x', at FROM n;
    INSERT INTO schedule_runs (name, slot) SELECT 'statistics', at FROM n;
    INSERT INTO queue_snapshots (at, queue, due, scheduled, leased, dead) SELECT at, 'q', 0, 0, 0, 0 FROM n;
    INSERT INTO waiting_snapshots (at, area_id, service_type, waiting, threshold, rejected, would_reject, bypassed)
        SELECT at, 'A', 'RIDE', 0, 1, 0, 0, 0 FROM n;
    INSERT INTO reconcile_log (at, rebuild, looked_at, inserted, moved, held, compensated) SELECT at, false, 0, 0, 0, 0, 0 FROM n;
    INSERT INTO dead_letters (job_id, died_at, queue, error, failed, lost, due_at, resolved_at, resolved_by, resolved_how)
        SELECT id, at, 'q', 'x', 5, 0, at, CASE WHEN n % 2 = 0 THEN at END, CASE WHEN n % 2 = 0 THEN 'x' END,
               CASE WHEN n % 2 = 0 THEN 'discarded' END FROM n;
    SET session_replication_role = origin;
    ANALYZE";

/// The plan for these arguments, by the planner's own choice.
async fn plan(db: &mut PgConnection, statement: &str, arguments: &[&str]) -> String {
    let of = |text: &str| (1..).take_while(|n| text.contains(&format!("${n}"))).count();
    // Parameters may be used in any order, and not all of them by each statement.
    let count = of(statement);
    let call = format!("EXPLAIN EXECUTE s ({})", arguments[..count].join(", "));
    sqlx::raw_sql(AssertSqlSafe(format!("PREPARE s AS {statement}"))).execute(&mut *db).await.unwrap();
    let call = if count == 0 { "EXPLAIN EXECUTE s".to_owned() } else { call };
    let lines: Vec<String> =
        sqlx::query_scalar(AssertSqlSafe(call)).persistent(false).fetch_all(&mut *db).await.unwrap();
    sqlx::raw_sql("DEALLOCATE s").execute(&mut *db).await.unwrap();
    lines.join("\n")
}

/// The text of a statement in the source, by its name.
fn statement(file: &str, name: &str) -> String {
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("crates").join(file)).unwrap();
    let begin = source.find(&format!("-- {name}\n")).unwrap_or_else(|| panic!("{file} has no statement '{name}'"));
    source[begin..].split('"').next().unwrap().to_owned()
}

async fn filled() -> (TestApp, PgConnection) {
    let t = TestApp::start().await;
    let mut db = PgConnection::connect(&t.postgres.url()).await.unwrap();
    sqlx::raw_sql(FILL).execute(&mut db).await.unwrap();
    sqlx::raw_sql("SET plan_cache_mode = force_custom_plan").execute(&mut db).await.unwrap();
    (t, db)
}

#[tokio::test]
async fn f05_every_sweep_reads_its_index() {
    let (t, mut db) = filled().await;
    let before = format!("(to_timestamp({}) - interval '10000 hours' + interval '14 days')", t.now_ms() / 1000);
    for sweep in SWEEPS {
        // A thousandth of the table, as a batch is of millions.
        let plan = plan(&mut db, sweep.remove, &[&before, "20", "'epoch'", "''"]).await;
        assert!(!plan.contains("Seq Scan"), "{}:\n{plan}", sweep.what);
        assert!(plan.contains("Index"), "{}:\n{plan}", sweep.what);
    }
}

#[tokio::test]
async fn f05_every_look_at_what_waits_reads_an_index() {
    let (_t, mut db) = filled().await;
    for (file, name, arguments) in [
        ("dispatch/src/reports/census.rs", "count a page of open orders", ["''", "100", "", ""].as_slice()),
        ("dispatch/src/recovery/pages.rs", "orders to reconcile", &["''", "3", "100"]),
        ("dispatch/src/recovery/pages.rs", "bookings to reconcile", &["''", "0", "3", "500"]),
        ("dispatch/src/recovery/pages.rs", "messages to reconcile", &["0", "3", "500"]),
        ("dispatch/src/recovery/pages.rs", "alerts to reconcile", &["0", "3", "500"]),
        ("dispatch/src/recovery/pages.rs", "callbacks to reconcile", &["0", "3", "500"]),
        ("dispatch/src/reports/census.rs", "count a page of refunds to begin", &["''", "500"]),
        ("api/src/metrics.rs", "oldest undelivered message", &[]),
        ("dispatch/src/reports/area_status.rs", "report of areas", &["'A'", "'2029-12-31'"]),
        ("dispatch/src/orders/query.rs", "when an order lived", &["'O000001'"]),
        ("dispatch/src/db/history_days.rs", "orders older than a day", &["'2029-01-01'", "1000"]),
    ] {
        let plan = plan(&mut db, &statement(file, name), arguments).await;
        assert!(!plan.contains("Seq Scan"), "{name}:\n{plan}");
    }
}
