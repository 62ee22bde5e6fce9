//! Checks docs/DATA.md: its tables list the columns of the `audit_` views, and its queries answer on orders that
//! were made by the application.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use accounts::api_keys::AccountRole;
use maintenance::periodic::supply;
use model::{decide::actions, order::OrderStatus};
use test_support::{
    TestApp,
    admission::full_for,
    partnership::{Partnership, patient},
    ride_with_id, secs,
};

/// A binding with a successful and a failed cycle. The sample queries need no worker for it.
const BINDING: &str = "
    INSERT INTO provider_servers (id, provider, base_url, changed_by) VALUES ('S1', 'sim', 'http://127.0.0.1:1', 'test');
    INSERT INTO bindings (id, server_id, account_id, config, cycle, call_no, created_at, updated_at)
        VALUES ('B-1', 'S1', 'A-1', '{}', 2, 2, dispatchq_now(), dispatchq_now());
    INSERT INTO transactions (trx_id, binding_id, cycle, server_id, account_id, status, started_at, ended_at)
        SELECT 'B-1.' || n, 'B-1', n, 'S1', 'A-1', CASE n WHEN 1 THEN 'SUKSES' ELSE 'GAGAL' END, dispatchq_now(), dispatchq_now()
        FROM generate_series(1, 2) n;
    INSERT INTO transaction_snapshots (binding_id, cycle, call_no, part, at, result, http_status, latency_us)
        SELECT 'B-1', n, n, 'end', dispatchq_now(), 'success', 200, 20000 FROM generate_series(1, 2) n";

pub(crate) fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// Returns the cells of a row of a Markdown table.
fn cells(row: &str) -> Vec<&str> {
    row.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// Returns the sections of a page below headings of three marks, by title.
fn sections(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split("\n### ").skip(1).map(|text| text.split_once('\n').unwrap())
}

#[tokio::test]
async fn data_page_lists_the_columns_of_the_audit_views() {
    let t = TestApp::start().await;
    let columns = t
        .texts(
            "SELECT concat_ws(' ', table_name, column_name, replace(data_type, 'timestamp with time zone', 'timestamptz'))
             FROM information_schema.columns WHERE table_schema = current_schema()
             ORDER BY table_name, ordinal_position",
        )
        .await;
    let page = read("docs/DATA.md");
    let diagrams = page.split("```mermaid\n").skip(1).map(|text| text.split_once("```").unwrap().0);
    let drawn: BTreeSet<_> = diagrams.flat_map(str::split_whitespace).collect();
    let (mut listed, mut views) = (BTreeMap::new(), 0);
    for (title, text) in sections(&page) {
        let Some(view) = title.strip_prefix("`audit_").and_then(|title| title.strip_suffix('`')) else { continue };
        let view = format!("audit_{view}");
        views += 1;
        assert!(text.contains("Kept: "), "{view}: for how long?");
        assert!(drawn.contains(view.as_str()), "no diagram has {view}");
        for row in text.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| `")) {
            let [column, kind, unit, meaning, source] = cells(row)[..] else { panic!("{view}: {row}") };
            assert!(kind != "timestamptz" || unit.contains("UTC"), "{view}: {row}");
            assert!(meaning.ends_with('.'), "{view}: {row}");
            let (table, name) = source.trim_matches('`').split_once('.').unwrap();
            let exists = columns.iter().any(|column| column.starts_with(&format!("{table} {name} ")));
            assert!(exists, "{view}: {source} is no column of a table");
            listed.entry(view.clone()).or_insert_with(Vec::new).push(format!("{} {kind}", column.trim_matches('`')));
        }
    }
    let mut actual: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for column in columns.iter().filter(|column| column.starts_with("audit_")) {
        let (view, column) = column.split_once(' ').unwrap();
        actual.entry(view.to_owned()).or_default().push(column.to_owned());
    }
    assert_eq!(listed, actual);
    assert_eq!(views, actual.len());
}

/// Creates orders that end in each way the queries report.
pub(crate) async fn make_orders(p: &Partnership) {
    full_for(p, "RIDE", 50).await;
    p.drivers(&[("D-1", 100.0), ("D-2", 200.0)]).await;
    // Completed.
    p.order_of("RIDE-1", "RIDE", "PAID").await;
    p.run_due().await;
    p.advance(secs(10)).await;
    let driver = p.accept_offer("RIDE-1").await;
    p.carry_out("RIDE-1", &driver).await;
    // Declined, accepted by another driver, returned, cancelled by the customer.
    p.order("RIDE-2").await;
    p.run_due().await;
    p.advance(secs(5)).await;
    p.decline_offer("RIDE-2").await;
    p.run_due().await;
    p.advance(secs(5)).await;
    let driver = p.accept_offer("RIDE-2").await;
    p.act("RIDE-2", |s| actions::cancel_by_driver(s, &driver, None)).await.unwrap();
    p.cancel("RIDE-2").await.unwrap();
    // No driver answers until the lifetime ends. Support refunds the payment.
    p.order_of("RIDE-3", "RIDE", "PAID").await;
    p.run_for(secs(1900)).await;
    assert_eq!(p.status("RIDE-3").await, OrderStatus::CancelledBySystemAfterPayment);
    let support = p.key(AccountRole::Support).await;
    for action in ["start", "done"] {
        p.advance(secs(3600)).await;
        let body = json!({ "action": action, "note": "bank transfer" });
        let answer = p.api.post("/api/v1/orders/RIDE-3/refund", &support, body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    // A partner completes a trip and finds no driver for another order.
    let booking = p.assigned("TAXI-1", "UNPAID").await;
    for status in [OrderStatus::DriverAssigned, OrderStatus::PickedUp, OrderStatus::Completed] {
        p.sim_steps(&booking, "TAXI-1", status).await;
    }
    p.booked("TAXI-2", "UNPAID").await;
    // An area that is full.
    let producer = p.key(AccountRole::Producer).await;
    full_for(p, "RIDE", 1).await;
    p.order("RIDE-4").await;
    let refused = p.api.post("/api/v1/orders", &producer, ride_with_id("RIDE-5")).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    p.app.areas.tally.write_counts(&p.app.core.db).await.unwrap();
    p.sql(BINDING).await;
    // The drivers of the last whole minute.
    let slot = p.now_ms() / 60_000 * 60 + 60;
    p.move_clock_to(slot * 1000).await;
    supply::run(&p.app.maintenance, slot.cast_signed()).await.unwrap();
}

#[tokio::test]
async fn sample_queries_answer_on_real_orders() {
    let p = Partnership::start(patient()).await;
    make_orders(&p).await;
    // Only the views are readable, as for an analyst.
    let mut session = PgConnection::connect(&p.postgres.url()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(read("deploy/postgres/roles.sql"))).execute(&mut session).await.unwrap();
    sqlx::raw_sql("SET ROLE dispatchq_auditor").execute(&mut session).await.unwrap();

    let page = read("docs/DATA.md");
    let mut rows: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (title, text) in sections(&page).filter(|(_, text)| text.contains("```sql")) {
        let query = text.split_once("```sql\n").unwrap().1.split_once(";\n```").unwrap().0;
        // The clock of the test starts on the first day of 2030.
        assert!(query.contains("'2026-03-01'") && query.contains("'2026-04-01'"), "{title}");
        let query = query.replace("'2026-03-01'", "'2030-01-01'").replace("'2026-04-01'", "'2030-02-01'");
        let query = format!("SELECT row_to_json(answer) FROM ({query}) answer");
        let found = sqlx::query_scalar(AssertSqlSafe(query)).fetch_all(&mut session).await;
        let number = title.split('.').next().unwrap().to_owned();
        rows.insert(number, found.unwrap_or_else(|error| panic!("{title}: {error}")));
    }
    assert!(rows.len() >= 10, "{} queries", rows.len());

    let expected = [
        ("1", json!({ "area": "JKT", "local_hour": 15, "orders": 2, "p50_s": 10.0, "p90_s": 10.0 })),
        ("2", json!({ "service_type": "RIDE", "completed": 1, "cancelled_by_customer": 1, "still_open": 1 })),
        ("3", json!({ "driver_id": "D-1", "accepted": 1, "declined": 1, "p50_answer_s": 7.5 })),
        ("4", json!({ "area": "JKT", "requests": 4, "refused": 1, "refused_percent": 25.0 })),
        ("5", json!({ "area": "JKT", "service_type": "RIDE", "closed_orders": 3, "without_driver": 1 })),
        ("6", json!({ "owed": 1, "started": 1, "refunded": 1, "p50_hours": 2.0 })),
        (
            "7",
            json!({ "partner": "bbd", "bookings": 2, "refused": 0, "found_driver": 1, "found_driver_percent": 50.0 }),
        ),
        ("8", json!({ "kind": "MANUAL_REFUND_REQUIRED", "channel": "log", "dead": 0, "tries": 1.0 })),
        ("9", json!({ "service_type": "RIDE", "attempts": 1, "orders": 1, "got_a_driver": 1 })),
        ("10", json!({ "cancelled_in": "DISPATCHING", "cancels": 1, "p50_waited_s": 10.0 })),
        ("11", json!({ "driver_id": "D-2", "returned": 1, "orders": 1 })),
        ("12", json!({ "server_id": "S1", "transactions": 2, "succeeded": 1, "failed": 1, "typical_p90_ms": 20.0 })),
        ("13", json!({ "area": "JKT", "service_type": "RIDE", "minutes": 1, "free": 2.0, "busy": 0.0 })),
    ];
    assert_eq!(rows.len(), expected.len());
    for (query, wanted) in expected {
        let wanted = wanted.as_object().unwrap();
        let fits = |row: &Value| wanted.iter().all(|(name, value)| row[name] == *value);
        assert!(rows[query].iter().any(fits), "query {query} has no row {wanted:?}: {:#?}", rows[query]);
    }
}
