//! Rows that pages read from large tables, from the plans in the Postgres log. No page scans a whole table or reads
//! more rows than the counting limit.

use std::fs;

use sqlx::{Connection, PgConnection};

use super::{Browser, PAGES};
use accounts::api_keys::AccountRole;
use desk::reports::glance;
use test_support::{Api, TestApp, rows::FILL};

/// Logs each plan with its rows, for connections opened afterwards.
const LOG_PLANS: &str = "
    ALTER DATABASE dispatchq SET session_preload_libraries = 'auto_explain';
    ALTER DATABASE dispatchq SET auto_explain.log_min_duration = 0;
    ALTER DATABASE dispatchq SET auto_explain.log_analyze = on;
    ALTER DATABASE dispatchq SET auto_explain.log_timing = off;
    ALTER DATABASE dispatchq SET auto_explain.log_nested_statements = off";
/// Pages of an open order, a closed order and a binding of [`FILL`], a search, and a part of the map.
const DETAILS: [&str; 5] = [
    "/console/orders/O000040",
    "/console/orders/O000041",
    "/console/bindings/O000001",
    "/console/search?q=O000040",
    "/console/map?at=0,0&km=500",
];
/// Maximum rows of a table that may be scanned in full, because an index would save nothing.
const SMALL_TABLE: f64 = 200.0;

/// A plan node that reads a table.
#[derive(Debug)]
struct TableScan {
    statement: String,
    /// Node type and table, for example `Index Scan using orders_open on orders`.
    node: String,
    loops: f64,
    /// Rows that were returned, or read and filtered out.
    rows: f64,
}

/// Returns the table scans of named statements in the Postgres log.
fn read_scans(log: &str) -> Vec<TableScan> {
    let mut scans: Vec<TableScan> = Vec::new();
    let mut statement = None;
    // Filtered rows are logged below the node that read them.
    let mut is_in_scan = false;
    for line in log.lines() {
        if line.contains("duration: ") && line.ends_with("plan:") {
            (statement, is_in_scan) = (None, false);
        } else if let Some((_, name)) = line.split_once("Query Text: -- ") {
            statement = Some(name.trim().to_owned());
        } else if let Some((node, figures)) = line.split_once("  (cost=") {
            let node = node.trim().trim_start_matches("->").trim();
            is_in_scan = statement.is_some() && node.contains("Scan") && node.contains(" on ");
            let read = |name: &str| figures.rsplit_once(name)?.1.split([' ', ')']).next()?.parse::<f64>().ok();
            // The planner's estimate comes first. A node that was never executed has no loops.
            if let (true, Some(rows), Some(loops), Some(statement)) =
                (is_in_scan, read(" rows="), read("loops="), &statement)
            {
                let (statement, node) = (statement.clone(), node.to_owned());
                scans.push(TableScan { statement, node, loops, rows: rows * loops });
            } else {
                is_in_scan = false;
            }
        } else if let Some((_, removed)) = line.split_once("Rows Removed by Filter: ")
            && is_in_scan
            && let (Some(scan), Ok(removed)) = (scans.last_mut(), removed.trim().parse::<f64>())
        {
            scan.rows += removed * scan.loops;
        }
    }
    scans
}

#[test]
fn scans_are_read_with_the_rows_that_they_left_out() {
    let log = "LOG:  duration: 4.580 ms  plan:
\tQuery Text: -- list sessions
\t         SELECT 1 FROM a
\tLimit  (cost=1618.44..1619.69 rows=500 width=88) (actual rows=1 loops=1)
\t  ->  Seq Scan on api_keys k  (cost=0.00..678.02 rows=6668 width=56) (actual rows=2 loops=3)
\t        Filter: (revoked_at IS NULL)
\t        Rows Removed by Filter: 20000
\t  ->  CTE Scan on s  (cost=0.00..1.00 rows=1 width=8) (never executed)
\t        Rows Removed by Filter: 7
LOG:  duration: 1.0 ms  plan:
\tQuery Text: SELECT 1
\tSeq Scan on b  (cost=0.00..1.00 rows=1 width=8) (actual rows=99 loops=1)
";
    let scans = read_scans(log);
    let [scan] = &scans[..] else { panic!("{scans:?}") };
    assert_eq!((scan.statement.as_str(), scan.node.as_str()), ("list sessions", "Seq Scan on api_keys k"));
    assert_eq!((scan.loops, scan.rows), (3.0, 60_006.0));
}

#[tokio::test]
async fn no_page_reads_a_large_table_from_end_to_end() {
    let t = TestApp::with_rows("crowded", FILL).await;
    let mut db = PgConnection::connect(&t.postgres.url()).await.unwrap();
    sqlx::raw_sql(LOG_PLANS).execute(&mut db).await.unwrap();
    // The new application has its own page connections.
    let app = t.reconfigured(|_| {});
    let api = Api::start(&app).await;
    let browser = Browser::signed_in(&t, &api, AccountRole::Admin).await;
    for path in PAGES.into_iter().chain(DETAILS) {
        // A plan is logged at the latest when its connection is used again.
        browser.text(path).await;
        browser.text(path).await;
    }
    app.core.pages.close().await;
    app.core.read_only.close().await;

    let log = fs::read_to_string(t.postgres.dir().join("server.log")).unwrap();
    let scans = read_scans(&log);
    for statement in [
        "find orders by any id",
        "orders of the fleet map",
        "search orders",
        "glance at open orders",
        "list sessions",
        "audit trail",
    ] {
        assert!(scans.iter().any(|scan| scan.statement == statement), "no plan of '{statement}' was logged");
    }
    let most = (glance::MOST + 1) as f64;
    let bad: Vec<&TableScan> = scans
        .iter()
        .filter(|scan| scan.rows > most || (scan.node.contains("Seq Scan") && scan.rows > SMALL_TABLE))
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
}
