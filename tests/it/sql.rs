//! The schema, its statements, and changes that write to an index.

use std::{fs, path::Path, time::Duration};

use servers::PgBouncer;
use sqlx::{AssertSqlSafe, Executor, SqlSafeStr};

use crate::support::TestApp;
use foundation::{
    config::database::DatabaseConfig,
    db::{self, Pool, SchemaState},
};
use maintenance::audit::{invariants::INVARIANTS, trail::trail_statement};

/// Collects the statements in the source of a folder, without its tests. Each is a string that starts with its name,
/// for example `-- load order`.
fn statements(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("tests") {
            continue;
        }
        if path.is_dir() {
            statements(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            statements_of_file(&path, found);
        }
    }
}

/// Adds the statements in the `.sql` files that a source file includes. Such a file contains one statement that starts
/// with its name, a part of one, or a script that fills a database.
fn statements_of_sql_files(path: &Path, source: &str, found: &mut Vec<String>) {
    let included = source.split("include_str!(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let texts = included.filter(|name| name.ends_with(".sql"));
    let texts = texts.map(|name| fs::read_to_string(path.with_file_name(name)).unwrap());
    let statements = texts.filter(|text| text.starts_with("-- ") && !text.contains(";\n"));
    found.extend(statements.map(|text| fill_placeholders(&text)));
}

/// Removes the placeholders that the code replaces in a statement. They are columns or optional parts, which other
/// tests run.
fn fill_placeholders(text: &str) -> String {
    let text = text.replace("{BINDING_COLUMNS}", "b.*").replace("{COLUMNS}", "id");
    // The events of a change determine the type of the second parameter.
    let text = text.replace("o.has_details){parts}", "o.has_details), e AS (SELECT $2::json)");
    let parts =
        ["{lock_wait}", "{first}", "{unlocked_driver}", "{checks}", "{parts}", "{more_columns}", "{more_values}"];
    let bare = parts.iter().fold(text, |text, part| text.replace(part, ""));
    let answers = ["{free_drivers}", "{messages}", "{callbacks}", "{steps}", "{settled}", "{raised}", "{has_room}"];
    answers.iter().fold(bare, |text, answer| text.replace(answer, "NULL"))
}

fn statements_of_file(path: &Path, found: &mut Vec<String>) {
    let source = fs::read_to_string(path).unwrap();
    statements_of_sql_files(path, &source, found);
    let texts = source.split("\"-- ").skip(1).filter_map(|rest| rest.split('"').next());
    // The audit trail statement combines many tables. It is checked in its final form.
    let texts = texts.filter(|text| !text.contains("{pages}"));
    found.extend(texts.map(|text| format!("-- {}", fill_placeholders(text))));
}

/// Makes the server behind this pool prepare every statement.
async fn assert_statements_fit(db: &Pool) {
    let mut found = vec![trail_statement().to_owned()];
    for folder in ["crates", "src", "workers"] {
        statements(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
    }
    assert!(found.len() > 30, "{} statements", found.len());
    let mut untyped = Vec::new();
    // All statements use one connection. Behind a pooler, a second connection could reuse statement names of the first
    // in the same session.
    let mut connection = db.acquire().await.unwrap();
    for statement in &found {
        let prepared = (&mut connection).prepare(AssertSqlSafe(statement.clone()).into_sql_str()).await;
        let Err(error) = prepared else { continue };
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
        // "operator is not unique": the statement works after its parameters are bound, which other tests do.
        assert_eq!(code.as_deref(), Some("42725"), "{error} in\n{statement}");
        untyped.extend(statement.lines().next().map(str::to_owned));
    }
    untyped.sort();
    assert_eq!(untyped, ["-- drivers nearby", "-- free candidates"]);
}

#[tokio::test]
async fn every_named_statement_fits_the_schema() {
    let t = TestApp::start().await;
    assert_statements_fit(&t.app.core.db).await;
    // The invariant check prepares the checker's statements.
    assert!(!INVARIANTS.is_empty());
    t.assert_sound().await;
}

#[tokio::test]
async fn every_named_statement_is_understood_through_a_pooler() {
    let t = TestApp::start().await;
    let pooler = PgBouncer::start(&t.postgres).await.unwrap();
    let pooled = DatabaseConfig { url: pooler.url(), pooler: true, ..t.app.config.database.clone() };
    assert_statements_fit(&db::connect_pool(&pooled).await.unwrap()).await;
}

/// Returns whether a plan line reads an index. For a bitmap scan, this is the part that reads the index.
fn is_index_scan(line: &str) -> bool {
    ["Index Scan using ", "Index Only Scan using ", "Index Scan Backward using ", "Bitmap Index Scan on "]
        .iter()
        .any(|node| line.contains(node))
}

/// Returns the number of parameters of a statement.
fn parameter_count(statement: &str) -> usize {
    let numbers =
        statement.split('$').skip(1).map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or(""));
    numbers.filter_map(|number| number.parse().ok()).max().unwrap_or(0)
}

/// Files with statements that search drivers or orders.
const SEARCH_FILES: [&str; 3] =
    ["orders/src/fleet/candidate_search.rs", "orders/src/fleet/candidates.rs", "orders/src/offers/free_drivers.rs"];

#[tokio::test]
async fn batch_statements_use_indexes_on_empty_tables() {
    let t = TestApp::start().await;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let mut found = Vec::new();
    for folder in ["orders/src/order_store", "bindings/src/store"] {
        statements(&source.join(folder), &mut found);
    }
    for file in ["notify/src/deliveries.rs", "foundation/src/idempotency_rows.rs"] {
        statements_of_file(&source.join(file), &mut found);
    }
    let mut looks = Vec::new();
    for file in SEARCH_FILES {
        statements_of_file(&source.join(file), &mut looks);
    }
    let of_searches = ["-- candidates\n", "-- free drivers of waiting orders\n", "-- waiting orders of free drivers\n"];
    found.extend(looks.into_iter().filter(|look| of_searches.iter().any(|name| look.starts_with(name))));
    let names: Vec<_> = found.iter().filter_map(|statement| statement.lines().next()).collect();
    for name in ["load order", "create orders", "write change", "store callback", "ignore callbacks", "candidates"] {
        assert!(names.contains(&format!("-- {name}").as_str()), "{name} is not in {names:?}");
    }
    let mut connection = t.app.core.batches.acquire().await.unwrap();
    for statement in &found {
        let run = |text: String| AssertSqlSafe(text);
        sqlx::raw_sql(run(format!("PREPARE p AS {statement}"))).execute(&mut connection).await.unwrap();
        let nothing = vec!["NULL"; parameter_count(statement)].join(", ");
        let arguments = if nothing.is_empty() { nothing } else { format!("({nothing})") };
        let plan: Vec<String> =
            sqlx::query_scalar(run(format!("EXPLAIN EXECUTE p{arguments}"))).fetch_all(&mut connection).await.unwrap();
        // A provider has a few servers, and their limits are one row.
        let has_few_rows = |line: &str| line.contains("provider_servers") || line.contains("binding_limits");
        let scans = |line: &str| line.contains("Seq Scan on ") && !has_few_rows(line);
        let reads_all = plan.iter().any(|line| scans(line) || line.contains("Hash Join"));
        // A full index scan, for example of waiting rows, reads few rows now and many after an outage.
        let reads_index = plan.iter().enumerate().any(|(at, line)| {
            is_index_scan(line)
                && !has_few_rows(line)
                && !plan.get(at + 1).is_some_and(|below| below.contains("Index Cond: "))
        });
        assert!(!reads_all && !reads_index, "{statement}\n{}", plan.join("\n"));
        sqlx::raw_sql("DEALLOCATE p").execute(&mut connection).await.unwrap();
    }
    drop(connection);
    t.assert_sound().await;
}

/// A small fleet with a long history. Postgres expects a refusal of each driver in the first few rows that it reads.
const LONG_HISTORY: &str = "
    INSERT INTO drivers (id, service_types, lat, lng, available, idle_since)
    SELECT 'D' || n, ARRAY['RIDE'], -6.2, 106.8, true, dispatchq_now() FROM generate_series(1, 20) n;
    INSERT INTO orders (id, service_type, pickup_lat, pickup_lng, payment_status, status, driver_id, lifetime_deadline, created_at,
                        updated_at, closed_at)
    SELECT 'L' || n, 'RIDE', -6.2, 106.8, 'UNPAID', 'COMPLETED', 'D1', t, t, t, t FROM dispatchq_now() t, generate_series(1, 1000) n;
    INSERT INTO offers (id, order_id, attempt_no, round, driver_id, state, offered_at, expires_at, responded_at)
    SELECT gen_random_uuid(), 'L' || n, 1, 1, 'D' || d, 'declined', at, at, at
    FROM (SELECT n, dispatchq_now() - n * interval '1 hour' AS at FROM generate_series(1, 1000) n) x, generate_series(1, 20) d;
    ANALYZE drivers; ANALYZE orders; ANALYZE offers";

#[tokio::test]
async fn candidate_search_never_scans_all_offers() {
    let t = TestApp::start().await;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let mut found = Vec::new();
    for file in SEARCH_FILES {
        statements_of_file(&source.join(file), &mut found);
    }
    let mut connection = t.app.core.db.acquire().await.unwrap();
    let run = |text: String| sqlx::raw_sql(AssertSqlSafe(text));
    run(format!("{LONG_HISTORY}; SET plan_cache_mode = force_generic_plan")).execute(&mut connection).await.unwrap();
    let mut looked_at = 0;
    for statement in found.iter().filter(|statement| statement.contains("'declined'")) {
        looked_at += 1;
        let types = if statement.starts_with("-- free candidates") {
            "(text, text, float8, float8, float8, float8, int4, int8, text[], int8, timestamptz)"
        } else {
            ""
        };
        run(format!("PREPARE p {types} AS {statement}")).execute(&mut connection).await.unwrap();
        let nothing = vec!["NULL"; parameter_count(statement)].join(", ");
        let plan: Vec<String> = sqlx::query_scalar(AssertSqlSafe(format!("EXPLAIN EXECUTE p({nothing})")))
            .fetch_all(&mut connection)
            .await
            .unwrap();
        assert!(!plan.iter().any(|line| line.contains("Seq Scan on offers")), "{statement}\n{}", plan.join("\n"));
        run("DEALLOCATE p".into()).execute(&mut connection).await.unwrap();
    }
    assert_eq!(looked_at, 4, "statements that look for refusals");
    run("DELETE FROM offers; DELETE FROM orders; DELETE FROM drivers".into()).execute(&mut connection).await.unwrap();
    drop(connection);
    t.assert_sound().await;
}

/// Such an index is written with every row, although the longer index answers its queries.
#[tokio::test]
async fn no_index_is_the_beginning_of_another() {
    let t = TestApp::start().await;
    let doubled = "SELECT i.relname || ' is the beginning of ' || j.relname
        FROM pg_index a JOIN pg_index b ON b.indrelid = a.indrelid AND b.indexrelid <> a.indexrelid
        JOIN pg_class i ON i.oid = a.indexrelid JOIN pg_class j ON j.oid = b.indexrelid
        WHERE NOT a.indisunique AND i.relam = j.relam AND a.indnatts = a.indnkeyatts AND a.indexprs IS NULL
          AND i.relam = (SELECT oid FROM pg_am WHERE amname = 'btree') AND i.relnamespace = 'public'::regnamespace
          AND pg_get_expr(a.indpred, a.indrelid) IS NOT DISTINCT FROM pg_get_expr(b.indpred, b.indrelid)
          AND starts_with(b.indkey::text || ' ', a.indkey::text || ' ')
        ORDER BY 1";
    assert_eq!(t.texts(doubled).await, Vec::<String>::new());
}

#[tokio::test]
async fn statements_reuse_the_latest_healthy_session() {
    let t = TestApp::start().await;
    let session = async || sqlx::query_scalar::<_, i32>("SELECT pg_backend_pid()").fetch_one(&t.app.core.batches).await;
    let first = session().await.unwrap();
    for _ in 0..5 {
        assert_eq!(session().await.unwrap(), first);
    }
    // A cancelled query leaves no answer for the next query on its connection.
    let slow = sqlx::query_scalar::<_, i32>("SELECT -1 FROM pg_sleep(1)").fetch_one(&t.app.core.batches);
    assert!(tokio::time::timeout(Duration::from_millis(20), slow).await.is_err());
    for n in 0..20 {
        let answer: i32 = sqlx::query_scalar("SELECT $1").bind(n).fetch_one(&t.app.core.batches).await.unwrap();
        assert_eq!(answer, n);
    }
    // A session that has ended fails at most one statement.
    let latest = session().await.unwrap();
    sqlx::query("SELECT pg_terminate_backend($1)").bind(latest).execute(&t.app.core.db).await.unwrap();
    let mut failures = 0;
    while session().await.map_or(true, |now| now == latest) {
        failures += 1;
        assert!(failures < 3, "an ended session is used again");
    }
    t.assert_sound().await;
}

#[tokio::test]
async fn the_columns_of_the_audit_views_are_a_promise() {
    let t = TestApp::start().await;
    let views = t
        .texts(
            "SELECT table_name || '(' || string_agg(column_name, ', ' ORDER BY ordinal_position) || ')'
             FROM information_schema.columns WHERE table_name LIKE 'audit\\_%' GROUP BY table_name ORDER BY table_name",
        )
        .await;
    assert_eq!(
        views,
        [
            "audit_admissions(hour, area_id, service_type, source, verdict, cause, loyalty, waiting, requests)",
            "audit_binding_events(seq, binding_id, at, kind, reason, actor, key_id, cycle)",
            "audit_binding_notifications(id, binding_id, kind, channel, state, attempts, created_at, delivered_at)",
            "audit_bindings(binding_id, server_id, account_id, state, reason, phase, cycle, call_no, call_action, unresolved, \
             otp_stored, otp_attempts, created_at, deleted_at, removed_through, calls_removed)",
            "audit_bookings(order_id, attempt_no, booking_id, job_id, state, created_at, closed_at, partner)",
            "audit_event_keys(seq, order_id, at, actor, key_id)",
            "audit_events(seq, order_id, from_status, to_status, reason, actor, attempt_no, at)",
            "audit_notifications(id, order_id, kind, channel, state, attempts, created_at, delivered_at)",
            "audit_offers(offer_id, order_id, attempt_no, driver_id, state, offered_at, expires_at, responded_at, wave)",
            "audit_orders(order_id, service_type, area_id, status, payment_status, driver_id, held_for_review, created_at, \
             lifetime_deadline, closed_at, paid_at, pickup_at, starts_at)",
            "audit_plans(plan_id, kind, action, filter, state, total, changed, unchanged, refused, created_by, created_key, \
             created_at, run_by, run_key, started_at, cancelled_by, cancelled_key, ended_at)",
            "audit_proof_violations(id, invariant, subject, detail, order_id, event_seq, event, step, found_at, seen_at, gone_at)",
            "audit_provider_calls(binding_id, cycle, call_no, part, at, action, fence, call_until, result, http_status, sent_at, \
             latency_us)",
            "audit_shadow_refusals(id, at, source, order_id, area_id, service_type, waiting, threshold, channel, loyalty_level)",
            "audit_staff_actions(id, at, actor, key_id, action, subject, reason, old_value, new_value)",
            "audit_staff_requests(id, at, key_id, address, request)",
            "audit_supply(minute, service_type, area_id, cell, free, busy, off_duty, made_500m, made_1km, made_3km, made_far, \
             accepted_500m, accepted_1km, accepted_3km, accepted_far, declined_500m, declined_1km, declined_3km, \
             declined_far, unanswered_500m, unanswered_1km, unanswered_3km, unanswered_far, counted_at)",
            "audit_transactions(trx_id, binding_id, cycle, server_id, account_id, status, reason, provider_ref, started_at, \
             ended_at)",
        ]
    );
}

#[tokio::test]
async fn attempts_and_rounds_write_no_index_of_orders() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    let steps = 20;
    let mut last = 0;
    while t.snapshot("ORD-1").await.order.version < steps {
        let next_ms = t.next_due_ms().await.unwrap();
        t.move_clock_to(next_ms.max(t.now_ms())).await;
        t.run_due().await;
        let version = t.snapshot("ORD-1").await.order.version;
        assert!(version >= last);
        last = version;
    }
    // A backend reports its statistics when it ends.
    t.app.core.close().await;
    let db = db::connect_pool(&t.app.config.database).await.unwrap();
    let counts = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'orders'";
    crate::support::eventually("the statistics arrive", || async {
        let (updates, hot): (i64, i64) = sqlx::query_as(counts).fetch_one(&db).await.unwrap();
        assert_eq!(updates, hot, "updates that wrote indexes");
        updates >= steps
    })
    .await;
}

#[tokio::test]
async fn migrating_again_and_from_several_places_changes_nothing() {
    let t = TestApp::start().await;
    let schema = "SELECT md5(string_agg(c::text, '')) FROM (SELECT table_name, column_name, data_type
                  FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2) c";
    let before = t.texts(schema).await;
    let (a, b, c) = tokio::join!(
        db::migrate_schema(&t.app.core.db),
        db::migrate_schema(&t.app.core.db),
        db::migrate_schema(&t.app.core.db)
    );
    a.and(b).and(c).unwrap();
    assert_eq!(t.texts(schema).await, before);
    assert_eq!(db::read_schema_state(&t.app.core.db).await.unwrap(), SchemaState::Current);
}

#[tokio::test]
async fn a_schema_that_lacks_what_this_version_uses_is_refused() {
    let t = TestApp::start().await;
    t.sql(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (99990101, 'add to the future', true, '', 0)",
    )
    .await;
    assert_eq!(db::read_schema_state(&t.app.core.db).await.unwrap(), SchemaState::Expanded(99_990_101));
    db::check_schema(&t.app.core.db).await.unwrap();
    db::migrate_schema(&t.app.core.db).await.unwrap();
    // A migration may remove objects that this version no longer uses.
    t.sql("UPDATE _sqlx_migrations SET description = 'contract 1 the past' WHERE version = 99990101").await;
    assert_eq!(db::read_schema_state(&t.app.core.db).await.unwrap(), SchemaState::Expanded(99_990_101));
    t.sql("UPDATE _sqlx_migrations SET description = 'contract 99990100 the past' WHERE version = 99990101").await;
    assert_eq!(db::read_schema_state(&t.app.core.db).await.unwrap(), SchemaState::Ahead(99_990_101));
    assert!(db::check_schema(&t.app.core.db).await.unwrap_err().to_string().contains("upgrade this binary"));
    assert!(db::migrate_schema(&t.app.core.db).await.is_err());
    t.sql(
        "DELETE FROM _sqlx_migrations WHERE version IN (SELECT version FROM _sqlx_migrations ORDER BY 1 DESC LIMIT 2)",
    )
    .await;
    assert_eq!(db::read_schema_state(&t.app.core.db).await.unwrap(), SchemaState::Behind(1));
    assert!(db::check_schema(&t.app.core.db).await.unwrap_err().to_string().contains("dispatchq migrate"));
}

#[tokio::test]
async fn schema_of_changed_migrations_is_refused() {
    let t = TestApp::start().await;
    t.sql("UPDATE _sqlx_migrations SET checksum = '\\x00' WHERE version = 2").await;
    assert_eq!(db::read_schema_state(&t.app.core.db).await.unwrap(), SchemaState::Changed(2));
    for refused in [db::check_schema(&t.app.core.db).await, db::migrate_schema(&t.app.core.db).await] {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("migration 2 differs") && text.contains("empty database"), "{text}");
    }
}

#[tokio::test]
async fn days_of_the_history_are_added_a_fortnight_ahead() {
    let t = TestApp::start().await;
    let partitions = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'order_events'::regclass";
    let before = t.count(partitions).await;
    assert!(t.count("SELECT (to_regclass('order_events_20300101') IS NOT NULL)::int::bigint").await == 1);
    assert!(t.count("SELECT (to_regclass('order_events_20300115') IS NOT NULL)::int::bigint").await == 1);
    assert_eq!(t.add_days().await, 0);
    t.sql("DROP TABLE order_events_20300115").await;
    let (a, b) = tokio::join!(t.add_days(), t.add_days());
    assert_eq!(a + b, 1);
    assert_eq!(t.count(partitions).await, before);
}

#[tokio::test]
async fn producers_in_sql_are_told_what_is_wrong() {
    let t = TestApp::start().await;
    let create = |service_type: &str| {
        sqlx::query_scalar::<_, bool>("SELECT dispatchq_create_order('ORD-1', $1, 1.0, 2.0, actor => 'shop')")
            .bind(service_type.to_owned())
            .fetch_one(&t.app.core.db)
    };
    let unknown = create("TELEPORT").await.unwrap_err().to_string();
    assert!(unknown.contains("unknown service type TELEPORT"), "{unknown}");
    assert!(create("RIDE").await.unwrap());
    assert!(!create("RIDE").await.unwrap(), "an order of this id exists already");
    assert_eq!(t.texts("SELECT actor FROM order_events").await, ["shop"]);

    // The producer's own transaction: its rollback removes the order.
    let mut tx = t.app.core.db.begin().await.unwrap();
    sqlx::query("SELECT dispatchq_create_order('ORD-2', 'RIDE', 1.0, 2.0)").execute(&mut *tx).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(t.count("SELECT count(*) FROM orders").await, 1);
}
