//! The cost of sweeps and searches does not grow with the tables: the planner chooses an index without hints.

use std::{fs, time::Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use desk::privacy::driver::WALKS;
use maintenance::{
    audit::trail,
    periodic::{binding_sweeps::BINDING_SWEEPS, sweeps::SWEEPS},
};
use test_support::{TestApp, rows::FILL, workspace};

/// An area and a period of one day.
const REPORT: [&str; 3] = ["'A'", "'2029-12-31'", "'2030-01-01'"];

/// Returns the plan that the planner chooses for these arguments.
async fn plan(db: &mut PgConnection, statement: &str, arguments: &[&str]) -> String {
    let of = |text: &str| (1..).take_while(|n| text.contains(&format!("${n}"))).count();
    // A statement may use its parameters in any order and may skip some.
    let count = of(statement);
    let call = format!("EXPLAIN EXECUTE s ({})", arguments[..count].join(", "));
    sqlx::raw_sql(AssertSqlSafe(format!("PREPARE s AS {statement}"))).execute(&mut *db).await.unwrap();
    let call = if count == 0 { "EXPLAIN EXECUTE s".to_owned() } else { call };
    let lines: Vec<String> =
        sqlx::query_scalar(AssertSqlSafe(call)).persistent(false).fetch_all(&mut *db).await.unwrap();
    sqlx::raw_sql("DEALLOCATE s").execute(&mut *db).await.unwrap();
    lines.join("\n")
}

/// Appends the quoted contents of the `.sql` files that a source file includes.
fn with_sql_files(source: &str, file: &str) -> String {
    let folder = workspace().join("crates").join(file);
    let included = source.split("include_str!(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let texts = included.filter(|name| name.ends_with(".sql")).map(|name| {
        let text = fs::read_to_string(folder.with_file_name(name)).unwrap();
        format!("\n\"{text}\"")
    });
    texts.fold(source.to_owned(), |all, text| all + &text)
}

/// Returns the text of a statement in the source, by its name.
fn statement(file: &str, name: &str) -> String {
    let source = fs::read_to_string(workspace().join("crates").join(file)).unwrap();
    let source = with_sql_files(&source, file);
    let begin = source.find(&format!("-- {name}\n")).unwrap_or_else(|| panic!("{file} has no statement '{name}'"));
    source[begin..].split('"').next().unwrap().to_owned()
}

async fn filled() -> (TestApp, PgConnection) {
    let t = TestApp::with_rows("crowded", FILL).await;
    let mut db = PgConnection::connect(&t.postgres.url()).await.unwrap();
    sqlx::raw_sql("SET plan_cache_mode = force_custom_plan").execute(&mut db).await.unwrap();
    (t, db)
}

// Fault F5
#[tokio::test]
async fn every_sweep_reads_its_index() {
    let (t, mut db) = filled().await;
    let before = format!("(to_timestamp({}) - interval '10000 hours' + interval '14 days')", t.now_ms() / 1000);
    for sweep in SWEEPS.into_iter().chain(BINDING_SWEEPS) {
        // A thousandth of the table, like a batch of a table with millions of rows.
        let plan = plan(&mut db, sweep.remove, &[&before, "20", "'epoch'", "''"]).await;
        assert!(!plan.contains("Seq Scan"), "{}:\n{plan}", sweep.what);
        assert!(plan.contains("Index"), "{}:\n{plan}", sweep.what);
    }
    // No index is on the age of a step.
    let feed = SWEEPS.into_iter().find(|sweep| sweep.what == "steps of orders").unwrap();
    let plan = plan(&mut db, feed.count, &[&before]).await;
    assert!(!plan.contains("Seq Scan") && plan.contains("Index"), "a dry run:\n{plan}");
}

// Fault F5
#[tokio::test]
async fn every_look_at_what_waits_reads_an_index() {
    let (_t, mut db) = filled().await;
    for (file, name, arguments) in [
        (
            "desk/src/reports/census.rs",
            "count a page of open orders",
            ["''", "100", "'{A1}'", "'{RIDE}'", "'{300}'"].as_slice(),
        ),
        ("maintenance/src/recovery/pages.rs", "orders to reconcile", &["''", "3", "100"]),
        ("maintenance/src/recovery/pages.rs", "bookings to reconcile", &["''", "0", "3", "500"]),
        ("maintenance/src/recovery/pages.rs", "refunds to reconcile", &["''", "3", "500"]),
        ("maintenance/src/recovery/pages.rs", "messages to reconcile", &["0", "3", "500"]),
        ("maintenance/src/recovery/pages.rs", "alerts to reconcile", &["0", "3", "500"]),
        ("maintenance/src/recovery/pages.rs", "callbacks to reconcile", &["0", "3", "500"]),
        ("desk/src/reports/census.rs", "count a page of refunds to begin", &["NULL", "NULL", "500"]),
        ("api/src/metrics.rs", "oldest undelivered message", &[]),
        ("api/src/metrics.rs", "steps held back", &[]),
        ("desk/src/reports/area_report.rs", "report of how areas stood", &REPORT),
        ("desk/src/reports/area_report.rs", "report of requests for places", &REPORT),
        ("desk/src/reports/area_report.rs", "report of how many waited", &REPORT),
        ("desk/src/reports/area_status.rs", "take counts of admission", &["'2029-12-31'"]),
        ("desk/src/reports/glance.rs", "glance at open orders", &["100"]),
        ("desk/src/reports/glance.rs", "glance at refunds", &["100"]),
        ("desk/src/reports/glance.rs", "glance at alerts", &["100"]),
        ("desk/src/reports/glance.rs", "curve of queues", &["3600"]),
        ("desk/src/reports/glance.rs", "curve of areas", &["3600"]),
        ("desk/src/reports/glance.rs", "curve of the whole", &["3600"]),
        ("desk/src/reports/partner_glance.rs", "glance at orders of partners", &["100"]),
        ("desk/src/reports/partner_glance.rs", "glance at bookings of partners", &["100"]),
        ("orders/src/fleet/driver_offers.rs", "latest offers of a driver", &["'D1'", "50"]),
        ("orders/src/fleet/driver_offers.rs", "ended offers of a driver", &["'D1'", "86400", "100"]),
        ("foundation/src/dead_letter_rows.rs", "dead letters by error", &["NULL", "100", "10"]),
        ("orders/src/search.rs", "orders to decide on", &["100"]),
        ("notify/src/endpoints/deliveries.rs", "deliveries of endpoint", &["'endpoint:1'", "NULL", "NULL", "50"]),
        (
            "orders/src/feed/replay.rs",
            "insert replayed steps",
            &[
                "'{}'",
                "'{O000001,O000002}'",
                "'{}'",
                "'{}'",
                "'{}'",
                "'endpoint:1'",
                "1",
                "'2030-01-01'",
                "'2030-01-01'",
            ],
        ),
        ("desk/src/operator/desk.rs", "takes of orders", &["'{O000001,O000002}'"]),
        ("notify/src/tickets.rs", "tickets of refunds", &["'{O000001,O000002}'", "'NEWS'"]),
        (
            "orders/src/offers/free_drivers.rs",
            "free drivers of waiting orders",
            &["'{O000040,O000080}'", "'{5000,5000}'", "'{1,1}'", "'{0,0}'", "2"],
        ),
        (
            "orders/src/offers/free_drivers.rs",
            "waiting orders of free drivers",
            &["'{D1,D2}'", "'{RIDE}'", "'{5000}'", "'{1}'", "'{0}'", "2", "300", "3000", "144"],
        ),
        ("orders/src/query.rs", "when an order lived", &["'O000001'"]),
        ("orders/src/query.rs", "orders with job id", &["'J000001'"]),
        ("desk/src/plans/store.rs", "plans to reconcile", &["'00000000-0000-0000-0000-000000000000'", "3", "500"]),
        ("desk/src/plans/store.rs", "next items of a plan", &["'00000000-0000-0000-0000-000000000001'", "50"]),
        ("desk/src/plans/store.rs", "count refusals of a plan", &["'00000000-0000-0000-0000-000000000001'"]),
        (
            "orders/src/search.rs",
            "search orders",
            &[
                "false", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "50",
                "NULL",
            ],
        ),
        (
            "orders/src/search.rs",
            "search orders",
            &[
                "false", "NULL", "NULL", "NULL", "'A1'", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "50",
                "NULL",
            ],
        ),
        (
            "orders/src/search.rs",
            "search orders",
            &[
                "true",
                "'2029-12-31'",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "50",
                "NULL",
            ],
        ),
        (
            "orders/src/search.rs",
            "search orders",
            &[
                "true", "NULL", "NULL", "NULL", "NULL", "NULL", "'D1'", "NULL", "NULL", "NULL", "NULL", "NULL", "50",
                "NULL",
            ],
        ),
        (
            "orders/src/search.rs",
            "search orders",
            &[
                "true", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "'C1'", "NULL", "NULL", "NULL", "NULL", "50",
                "NULL",
            ],
        ),
        (
            "orders/src/search.rs",
            "search orders",
            &[
                "true",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "'{O000001,O000002}'",
                "NULL",
                "NULL",
                "50",
                "NULL",
            ],
        ),
        (
            "orders/src/search.rs",
            "search orders",
            &[
                "false", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "true", "NULL", "NULL", "NULL", "50",
                "NULL",
            ],
        ),
        (
            "orders/src/search.rs",
            "search orders",
            &[
                "false",
                "NULL",
                "NULL",
                "'PENDING'",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "NULL",
                "50",
                "NULL",
            ],
        ),
        (
            "orders/src/search.rs",
            "count searched orders",
            &[
                "false", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "1001", "NULL",
                "NULL", "NULL",
            ],
        ),
        (
            "orders/src/search.rs",
            "count searched orders",
            &[
                "true", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "'C1'", "NULL", "NULL", "1001", "NULL", "NULL",
                "NULL",
            ],
        ),
        (
            "orders/src/search.rs",
            "search orders",
            &[
                "true", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "50",
                "'shop-1'",
            ],
        ),
        ("orders/src/search.rs", "orders that bear an id", &["'O000001'", "'{p}'", "1000"]),
        ("orders/src/search.rs", "list refunds", &["true", "true", "NULL", "NULL", "50"]),
        ("orders/src/search.rs", "list completed refunds", &["NULL", "NULL", "50"]),
        ("foundation/src/db/history_days.rs", "orders older than a day", &["'2029-01-01'", "1000"]),
        ("orders/src/feed/read.rs", "page of feed", &["'0'", "0", "'1'", "100"]),
        ("orders/src/feed/read.rs", "page of a producer's feed", &["'shop-1'", "'0'", "0", "'1'", "100"]),
        ("orders/src/feed/read.rs", "creation in feed", &["'O000001'"]),
        ("orders/src/feed/read.rs", "erase driver from feed", &["'D1'", "'erased'", "'0'", "0", "100"]),
        ("orders/src/feed/board.rs", "ends of producers' feeds", &["'{shop-1}'"]),
        ("orders/src/feed/board.rs", "end of feed", &[]),
        ("desk/src/privacy.rs", "orders of erased driver", &["'D1'"]),
        ("desk/src/privacy.rs", "unfinished erasures", &["'2030-01-01'"]),
    ] {
        let plan = plan(&mut db, &statement(file, name), arguments).await;
        assert!(!plan.contains("Seq Scan"), "{name}:\n{plan}");
    }
}

#[tokio::test]
async fn lists_by_status_or_service_use_indexes() {
    let (_t, mut db) = filled().await;
    const NONE: &str = "NULL";
    for (index, all, from, status, service) in [
        ("orders_closed_by_status", "true", "'2029-01-01'", "'CANCELLED_BY_DRIVER'", NONE),
        ("orders_open", "false", NONE, "'DRIVER_ASSIGNED'", NONE),
        ("orders_to_decide", "false", NONE, "'PENDING'", NONE),
        ("orders_open", "false", NONE, NONE, "'RENT'"),
    ] {
        let filter = [all, from, NONE, status, NONE, service, NONE, NONE, NONE, NONE];
        for (name, rest) in [
            ("search orders", [NONE, NONE, "50", NONE].as_slice()),
            ("count searched orders", &["1001", NONE, NONE, NONE]),
            ("count searched orders", &["951", NONE, "'2030-01-01'", "'O000001'"]),
        ] {
            let arguments = [filter.as_slice(), rest].concat();
            let plan = plan(&mut db, &statement("orders/src/search.rs", name), &arguments).await;
            assert!(plan.contains(index), "{name}:\n{plan}");
        }
    }
}

// Fault F5
#[tokio::test]
async fn erasure_of_driver_uses_primary_keys() {
    let (_t, mut db) = filled().await;
    for walk in WALKS {
        let first = format!("ARRAY['{}']", walk.first.join("', '"));
        let plan = plan(&mut db, walk.statement, &["'D1'", &first, "20", "'erased-1'"]).await;
        assert!(!plan.contains("Seq Scan"), "{}:\n{plan}", walk.table);
    }
}

// Fault F5
#[tokio::test]
async fn the_audit_trail_reads_an_index_of_each_history() {
    let (_t, mut db) = filled().await;
    let arguments = ["'2029-12-31'", "'2030-01-01'", "''", "NULL", "NULL", "NULL", "50"];
    let plan = plan(&mut db, trail::trail_statement(), &arguments).await;
    // A new day of the history is empty, so an index would save nothing.
    let scanned: Vec<&str> =
        plan.lines().filter(|line| line.contains("Seq Scan") && !line.contains("order_events_2")).collect();
    assert!(scanned.is_empty(), "{scanned:?}:\n{plan}");
}

/// Returns the rows of orders and offers that this statement reads, as counted by Postgres, and the rows that it
/// returns. Its writes are rolled back.
async fn orders_read_by(db: &mut PgConnection, statement: &str, arguments: &str) -> (i64, usize) {
    const READ: &str = "
        SELECT sum(CASE relname WHEN 'orders' THEN seq_tup_read + coalesce(idx_tup_fetch, 0) ELSE seq_tup_read + idx_scan END)::bigint
        FROM pg_stat_xact_user_tables WHERE relname IN ('orders', 'offers')";
    sqlx::raw_sql(AssertSqlSafe(format!("PREPARE s AS {statement}"))).execute(&mut *db).await.unwrap();
    let mut tx = db.begin().await.unwrap();
    let before: i64 = sqlx::query_scalar(READ).fetch_one(&mut *tx).await.unwrap();
    let execute = format!("EXECUTE s ({arguments})");
    let rows = sqlx::raw_sql(AssertSqlSafe(execute)).fetch_all(&mut *tx).await.unwrap().len();
    let after: i64 = sqlx::query_scalar(READ).fetch_one(&mut *tx).await.unwrap();
    tx.rollback().await.unwrap();
    sqlx::raw_sql("DEALLOCATE s").execute(&mut *db).await.unwrap();
    (after - before, rows)
}

/// Returns the number of orders read by the search for orders near this driver.
async fn orders_read_for(db: &mut PgConnection, driver: &str) -> i64 {
    let look = statement("orders/src/offers/free_drivers.rs", "waiting orders of free drivers");
    let arguments = format!("'{{{driver}}}', '{{RIDE}}', '{{1000}}', '{{1}}', '{{0}}', 4, 300, 3000, 144");
    let (read, found) = orders_read_by(db, &look, &arguments).await;
    assert_eq!(found, 3, "the orders near {driver}");
    read
}

/// Two drivers at one place, a waiting order there that was offered to one of them, and orders of other drivers on a
/// trip. The latest statistics of Postgres are from a quiet night and miss them.
const RUSH_HOUR: &str = "
    INSERT INTO orders (id, service_type, pickup_lat, pickup_lng, payment_status, status, lifetime_deadline, created_at, updated_at,
                        closed_at)
        SELECT 'OLD-' || n, 'RIDE', 0, 0, 'UNPAID', 'CANCELLED_BY_USER', dispatchq_now(), dispatchq_now(), dispatchq_now(),
               dispatchq_now() FROM generate_series(1, 2000) n;
    INSERT INTO drivers (id, service_types, lat, lng, available)
        SELECT 'D' || n, '{RIDE}', CASE WHEN n <= 2 THEN -6.205 ELSE -7 END, 106.805, true FROM generate_series(1, 2000) n;
    ANALYZE;
    INSERT INTO orders (id, service_type, pickup_lat, pickup_lng, payment_status, status, driver_id, lifetime_deadline, created_at,
                        updated_at)
        SELECT 'WAY-' || n, 'RIDE', -7, 106.805, 'UNPAID', 'DRIVER_ASSIGNED', 'D' || n, dispatchq_now() + interval '1 day',
               dispatchq_now(), dispatchq_now() FROM generate_series(3, 1500) n;
    INSERT INTO orders (id, service_type, pickup_lat, pickup_lng, payment_status, status, lifetime_deadline, created_at, updated_at,
                        next_attempt_at)
        SELECT 'WAITING-' || n, 'RIDE', CASE WHEN n = 1 THEN -6.205 ELSE -7 END, 106.805, 'UNPAID', 'DISPATCHING',
               dispatchq_now() + interval '1 day', dispatchq_now(), dispatchq_now(), dispatchq_now() FROM generate_series(1, 500) n;
    INSERT INTO offers (id, order_id, attempt_no, round, driver_id, state, offered_at, expires_at)
        VALUES ('00000000-0000-0000-0000-000000000001', 'WAITING-1', 1, 0, 'D1', 'offered', dispatchq_now(), dispatchq_now())";

/// Returns the part of the write statement that searches for free drivers.
fn free_drivers_of_write() -> String {
    let part = fs::read_to_string(workspace().join("crates/orders/src/order_store/free_drivers.sql")).unwrap();
    let part = part.trim().trim_end_matches(',').replace("$10", "$1").replace("$11", "$2");
    format!(
        "WITH n AS (SELECT 'WAITING-1' AS id, 0 AS expected), l AS (SELECT id, version FROM orders WHERE id = 'WAITING-1'), {part} SELECT * FROM p"
    )
}

// Fault F5
#[tokio::test]
async fn busy_drivers_are_looked_up_individually() {
    let t = TestApp::start().await;
    let mut db = PgConnection::connect(&t.postgres.url()).await.unwrap();
    sqlx::raw_sql(RUSH_HOUR).execute(&mut db).await.unwrap();
    let offer = "'{00000000-0000-0000-0000-000000000001}'";
    let source = |file: &str, name: &str| statement(&format!("orders/src/{file}"), name);
    let planned = r#"'[{"order_id": "WAITING-1", "driver_id": "D2", "per_driver": 1}]', 7"#;
    let candidates = r#"'[{"place": 0, "ids": ["D1", "D2", "D3"], "service_type": "RIDE", "order_id": "WAITING-1",
                          "former_drivers": [], "round": 1, "offers_per_driver": 1}]'"#;
    let near = |drivers: &str, radius: &str| {
        format!("'{{{drivers}}}', '{{RIDE}}', '{{{radius}}}', '{{1}}', '{{0}}', 4, 300, 3000, 144")
    };
    let (narrow, wide) = (near("D2,D3", "2000"), near("D2,D3,D1600,D1700,D1800", "900000"));
    for (name, look, arguments, answers, most) in [
        ("candidates", source("fleet/candidate_search.rs", "candidates"), candidates, 3, 30),
        (
            "free candidates",
            source("fleet/candidates.rs", "free candidates"),
            "'WAITING-1', 'RIDE', -6.205, 106.805, 0.1, 0.1, 1, 20, '{}', 1, NULL, false",
            1,
            30,
        ),
        (
            "free drivers of waiting orders",
            source("offers/free_drivers.rs", "free drivers of waiting orders"),
            "'{WAITING-1}', '{2000}', '{1}', '{0}', 1",
            1,
            30,
        ),
        ("a small circle", source("offers/free_drivers.rs", "waiting orders of free drivers"), &narrow, 1, 30),
        // Four drivers are free, and each gets four orders. All 500 waiting orders are read once, and each driver's
        // offers are read only for the orders that the driver gets.
        ("wide circles", source("offers/free_drivers.rs", "waiting orders of free drivers"), &wide, 16, 560),
        (
            "offers are live",
            source("order_store/offers.rs", "offers are live"),
            &format!("{offer}, '{{WAITING-1}}', '{{D1}}'"),
            1,
            30,
        ),
        ("write change", free_drivers_of_write(), planned, 1, 30),
    ] {
        // Places are bound as numbers and subtracted from each other.
        let typed = ["$3 - $5", "$4 - $6"]
            .iter()
            .fold(look, |text, span| text.replace(span, &span.replace(" -", "::float8 -")));
        for plans in ["force_custom_plan", "force_generic_plan"] {
            // Settings of the batch connections.
            let set = format!(
                "SET plan_cache_mode = {plans}; SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off"
            );
            sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut db).await.unwrap();
            let (read, found) = orders_read_by(&mut db, &typed, arguments).await;
            assert_eq!(found, answers, "{name}, {plans}");
            assert!(read < most, "{name} read {read}: 1,500 orders are on the way and 500 wait, {plans}");
        }
    }
}

/// Adds waiting orders at one place, each older than the previous one by `apart`.
async fn add_waiting(db: &mut PgConnection, prefix: &str, orders: u32, place: (f64, f64), apart: &str) {
    let (lat, lng) = place;
    let insert = format!(
        "INSERT INTO orders (id, service_type, pickup_lat, pickup_lng, payment_status, status, lifetime_deadline, created_at,
                             updated_at, next_attempt_at)
         SELECT '{prefix}' || n, 'RIDE', {lat}, {lng}, 'UNPAID', 'DISPATCHING', dispatchq_now() + interval '1 day',
                dispatchq_now() - n * interval '{apart}', dispatchq_now(), dispatchq_now() FROM generate_series(1, {orders}) n;
         ANALYZE orders"
    );
    sqlx::raw_sql(AssertSqlSafe(insert)).execute(db).await.unwrap();
}

// Fault F5
#[tokio::test]
async fn driver_search_cost_ignores_waiting_orders() {
    let (_t, mut db) = filled().await;
    let here = (-6.205, 106.805);
    let driver =
        "INSERT INTO drivers (id, service_types, lat, lng, available) VALUES ('NEAR', '{RIDE}', -6.205, 106.805, true)";
    sqlx::raw_sql(driver).execute(&mut db).await.unwrap();
    add_waiting(&mut db, "NEAR-", 3, here, "1 day").await;
    add_waiting(&mut db, "FAR-", 500, (-7.5, 110.8), "1 second").await;
    let few = orders_read_for(&mut db, "NEAR").await;
    assert!(few < 100, "{few} orders were read for three");
    add_waiting(&mut db, "FARTHER-", 5_000, (-7.6, 110.8), "1 minute").await;
    let read = orders_read_for(&mut db, "NEAR").await;
    assert!(read < 100, "{read} orders were read, {few} before 5,000 more waited elsewhere");
    // Orders in the driver's map cell but out of reach: only the oldest are read.
    add_waiting(&mut db, "CELL-", 5_000, (-6.249, 106.849), "1 second").await;
    let read = orders_read_for(&mut db, "NEAR").await;
    assert!(read < 450, "{read} orders were read, {few} before 5,000 more waited in the cell");
}

/// The minute that the supply log counts now.
const LAST_MINUTE: &str = "dispatchq_now() - interval '1 minute'";

fn supply_statement() -> String {
    statement("maintenance/src/periodic/supply.rs", "count supply of a minute")
}

// Fault F5
#[tokio::test]
async fn supply_count_scans_only_the_drivers() {
    let (_t, mut db) = filled().await;
    let plan = plan(&mut db, &supply_statement(), &[LAST_MINUTE]).await;
    let scanned: Vec<&str> = plan.lines().filter(|line| line.contains("Seq Scan")).collect();
    assert!(scanned.iter().all(|line| line.contains("Seq Scan on drivers")), "{scanned:?}:\n{plan}");
    for index in ["offers_live_by_driver", "offers_unwanted", "offers_settled", "orders_one_active_per_driver"] {
        assert!(plan.contains(index), "{index}:\n{plan}");
    }
}

/// Answers of an hour ago: five of each of 10,000 drivers.
const OLD_ANSWERS: &str = "
    INSERT INTO offers (id, order_id, attempt_no, round, driver_id, state, offered_at, expires_at, responded_at)
        SELECT gen_random_uuid(), 'O000001', n / 10000 + 2, 1, 'D' || n % 10000 + 1,
               CASE WHEN n % 2 = 0 THEN 'declined' ELSE 'withdrawn' END, at, at, at
        FROM generate_series(0, 49999) n, (SELECT dispatchq_now() - interval '1 hour' AS at) t";

// Fault F5
#[tokio::test]
async fn supply_count_of_10000_drivers_is_bounded() {
    let (_t, mut db) = filled().await;
    let fleet = "DELETE FROM drivers WHERE substr(id, 2)::integer > 10000; SET jit = off";
    sqlx::raw_sql(fleet).execute(&mut db).await.unwrap();
    let begun = Instant::now();
    let (read, minutes) = orders_read_by(&mut db, &supply_statement(), LAST_MINUTE).await;
    println!("The count of 10,000 drivers took {:?}.", begun.elapsed());
    assert_eq!(minutes, 1);
    assert!(read <= 30_000, "{read} reads of orders and offers: more than three for a driver");
    sqlx::raw_sql(OLD_ANSWERS).execute(&mut db).await.unwrap();
    assert_eq!(orders_read_by(&mut db, &supply_statement(), LAST_MINUTE).await, (read, 1), "with older answers");
}
