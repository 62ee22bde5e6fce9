//! `dispatchq export`: the files of both formats have the rows and columns of the views, and a failed export leaves
//! only partial files.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::symlink,
    path::Path,
};

use chrono::{DateTime, SecondsFormat};
use parquet::{
    file::{reader::FileReader, serialized_reader::SerializedFileReader},
    record::Field,
};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tempfile::TempDir;

use crate::{
    data_page::{make_orders, read},
    support::{
        Printed, TestApp,
        partnership::{Partnership, patient},
        run_binary, secs,
    },
};

/// The first day of the test's clock.
const DAY: &str = "2030-01-01";
const VIEWS: usize = 18;

/// Rows of the views that orders do not fill, with texts that need quotes. Some are outside the day by a millisecond.
const ROWS: &str = "
    INSERT INTO staff_requests (at, key_id, address, request)
        SELECT at::timestamptz, gen_random_uuid(), '127.0.0.1', 'boundary ' || at FROM unnest(ARRAY[
            '2029-12-31T23:59:59.999Z', '2030-01-01T00:00:00Z', '2030-01-01T23:59:59.999Z', '2030-01-02T00:00:00Z']) AS at;
    INSERT INTO shadow_refusals (at, source, area_id, service_type, threshold, channel, loyalty_level)
        SELECT '2030-01-01T12:00Z', 'check', 'JKT', 'RIDE', 1, channel, NULL FROM unnest(ARRAY['', NULL, 'NULL', '\\N']) AS channel;
    INSERT INTO staff_actions (at, actor, action, subject, reason, old_value, new_value)
        SELECT '2030-01-01T12:00Z', 'cli:ana', 'TEST', 'x', reason, NULL, jsonb_build_object('reason', reason)
        FROM unnest(ARRAY['plain', 'a,b;c', 'she said \"no\"', E'two\\nlines\\r\\n', '=1+1', ' spaces ', 'día ☂', '\\.']) AS reason;
    INSERT INTO plans (id, kind, action, filter, state, total, created_by, created_at)
        VALUES (gen_random_uuid(), 'bindings', '{\"kind\": \"stop\"}', '{}', 'PLANNED', 0, 'cli:ana', '2030-01-01T12:00Z');
    INSERT INTO proof_violations (invariant, subject, detail, step, found_at, seen_at)
        VALUES ('one_outcome', 'ORD-1', 'no outcome', 1, '2030-01-01T12:00Z', '2030-01-01T12:00Z');
    INSERT INTO binding_events (binding_id, at, kind, actor) VALUES ('B-1', '2030-01-01T12:00Z', 'started', 'cli:ana');
    INSERT INTO outbox (order_id, binding_id, kind, channel, dedupe_key, payload, next_attempt_at, expires_at, created_at)
        VALUES ('__binding__', 'B-1', 'OTP_WANTED', 'log', 'x', '{}', '2030-01-01T12:00Z', '2030-01-01T12:00Z', '2030-01-01T12:00Z')";

/// Texts that no file may contain, and rows with them.
const PRIVATE: [&str; 3] = ["+62811999888777", "PRIVATE-4711", "\\x50524956415445"];
const PRIVATE_ROWS: &str = "
    INSERT INTO drivers (id, service_types, lat, lng, phone) VALUES ('D-PHONE', '{RIDE}', 0, 0, '+62811999888777');
    UPDATE orders SET customer_id = 'PRIVATE-4711', owner = 'PRIVATE-4711', held_reason = NULL;
    UPDATE outbox SET payload = '{\"phone\": \"+62811999888777\", \"otp\": \"PRIVATE-4711\"}', last_error = 'PRIVATE-4711', ticket = 'PRIVATE-4711';
    UPDATE bindings SET phase = 'WAITING_OTP', state = 'RUNNING', trx_id = 'B-1.3', next_at = dispatchq_now(),
        otp_value = 'PRIVATE', otp_submitted_at = dispatchq_now(), config = '{\"note\": \"PRIVATE-4711\"}';
    UPDATE transaction_snapshots SET request = 'PRIVATE-4711', response = 'PRIVATE-4711';
    UPDATE plans SET reason = 'PRIVATE-4711';
    UPDATE binding_events SET detail = 'PRIVATE-4711', given_reason = 'PRIVATE-4711', new_value = '\"PRIVATE-4711\"'";

/// Servers with rows, at a time after the day, and the folder in which exports run.
struct Auditing {
    p: Partnership,
    dir: TempDir,
}

impl Auditing {
    async fn start() -> Self {
        let p = Partnership::start(patient()).await;
        make_orders(&p).await;
        p.sql(ROWS).await;
        p.sql(PRIVATE_ROWS).await;
        p.advance(secs(86_400)).await;
        grant(&p).await;
        Self { p, dir: tempfile::tempdir().unwrap() }
    }

    fn export(&self, format: &str, out: &str) -> Printed {
        let url = url_of(&self.p, "dispatchq_auditor");
        let args = ["export", "--day", DAY, "--format", format, "--out", out, "--json"];
        run_binary(self.dir.path(), &args, &[("DISPATCHQ_DATABASE__URL", &url)])
    }

    /// Exports, asserts that it fails, and returns the error.
    fn fails(&self, format: &str, out: &str) -> String {
        let failed = self.export(format, out);
        assert_eq!((failed.code, failed.stdout.as_str()), (Some(1), ""), "{failed:?}");
        failed.stderr
    }

    fn names(&self, out: &str) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path().join(out)).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    async fn session(&self) -> PgConnection {
        PgConnection::connect(&self.p.postgres.url()).await.unwrap()
    }
}

/// Runs the shipped roles file.
async fn grant(t: &TestApp) {
    let mut session = PgConnection::connect(&t.postgres.url()).await.unwrap();
    let roles = read("deploy/postgres/roles.sql");
    sqlx::raw_sql(AssertSqlSafe(roles)).execute(&mut session).await.unwrap();
    let passwords = "ALTER ROLE dispatchq_auditor PASSWORD 'pw'; ALTER ROLE dispatchq_run PASSWORD 'pw'";
    sqlx::raw_sql(passwords).execute(&mut session).await.unwrap();
}

fn url_of(t: &TestApp, role: &str) -> String {
    let url = t.postgres.url();
    format!("postgres://{role}:pw@{}", url.rsplit_once('@').unwrap().1)
}

/// Returns the column of each view that docs/DATA.md names for the export.
fn day_columns() -> BTreeMap<String, String> {
    let page = read("docs/DATA.md");
    let section = page.split("\n## Export of a day").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `audit_"));
    let cell = |row: &str, n: usize| row.split('|').nth(n).unwrap().trim().trim_matches('`').to_owned();
    rows.map(|row| (cell(row, 1), cell(row, 2))).collect()
}

/// Returns the records of a Parquet file as CSV that Postgres reads, with the names of its columns.
fn parquet_as_csv(file: &Path) -> String {
    let reader = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr();
    let names: Vec<String> = schema.columns().iter().map(|column| column.name().to_owned()).collect();
    let mut text = names.join(",") + "\n";
    for row in reader.get_row_iter(None).unwrap() {
        let cells = row.unwrap().into_columns().into_iter().map(|(_, field)| match field {
            Field::Null => String::new(),
            Field::Bool(value) => value.to_string(),
            Field::Int(value) => value.to_string(),
            Field::Long(value) => value.to_string(),
            Field::TimestampMicros(micros) => {
                DateTime::from_timestamp_micros(micros).unwrap().to_rfc3339_opts(SecondsFormat::Micros, true)
            }
            Field::Str(value) => format!("\"{}\"", value.replace('"', "\"\"")),
            other => panic!("{other:?}"),
        });
        text += &(cells.collect::<Vec<_>>().join(",") + "\n");
    }
    text
}

/// Asserts that CSV has the same columns and rows as a view has on the day. Returns the number of rows.
async fn assert_is_view(session: &mut PgConnection, view: &str, day_column: &str, csv: &str) -> i64 {
    let copy = format!("DROP TABLE IF EXISTS copied; CREATE TEMP TABLE copied AS SELECT * FROM {view} WITH NO DATA");
    sqlx::raw_sql(AssertSqlSafe(copy)).execute(&mut *session).await.unwrap();
    // Postgres compares the names of the columns.
    let mut into = session.copy_in_raw("COPY copied FROM STDIN (FORMAT csv, HEADER match)").await.unwrap();
    into.send(csv.as_bytes()).await.unwrap();
    into.finish().await.unwrap_or_else(|error| panic!("{view}: {error}\n{csv}"));
    let expected = format!("SELECT * FROM {view} WHERE {day_column} >= '{DAY}Z' AND {day_column} < '2030-01-02Z'");
    let compare = format!(
        "SELECT (SELECT count(*) FROM copied),
                (SELECT count(*) FROM ((TABLE copied EXCEPT ALL {expected}) UNION ALL ({expected} EXCEPT ALL TABLE copied)) d)"
    );
    let (rows, different): (i64, i64) =
        sqlx::query_as(AssertSqlSafe(compare)).persistent(false).fetch_one(session).await.unwrap();
    assert_eq!(different, 0, "{view}:\n{csv}");
    rows
}

#[tokio::test]
async fn both_formats_have_the_rows_of_the_views() {
    let auditing = Auditing::start().await;
    let mut session = auditing.session().await;
    let columns = day_columns();
    let views = "SELECT viewname::text FROM pg_views WHERE viewname LIKE 'audit\\_%' ORDER BY viewname";
    let views: Vec<String> = sqlx::query_scalar(views).fetch_all(&mut session).await.unwrap();
    assert_eq!(columns.keys().collect::<Vec<_>>(), views.iter().collect::<Vec<_>>(), "docs/DATA.md lists the views");
    assert_eq!(views.len(), VIEWS);

    for format in ["csv", "parquet"] {
        let printed = auditing.export(format, format);
        assert_eq!((printed.code, printed.stderr.as_str()), (Some(0), ""), "{printed:?}");
        let export: Value = serde_json::from_str(&printed.stdout).unwrap();
        assert_eq!((&export["day"], &export["folder"]), (&json!(DAY), &json!(format)));
        let files = export["files"].as_array().unwrap();
        let mut listed: Vec<_> = files.iter().map(|file| file["file"].as_str().unwrap().to_owned()).collect();
        listed.sort();
        assert_eq!(auditing.names(format), listed, "no partial file is left");
        assert_eq!(listed.len(), VIEWS);
        for file in files {
            let view = file["view"].as_str().unwrap();
            let path = auditing.dir.path().join(format).join(file["file"].as_str().unwrap());
            assert_eq!(fs::metadata(&path).unwrap().len(), file["bytes"].as_u64().unwrap());
            let csv = if format == "csv" { fs::read_to_string(&path).unwrap() } else { parquet_as_csv(&path) };
            let rows = assert_is_view(&mut session, view, &columns[view], &csv).await;
            assert!(rows > 0, "{view} has no row, so the test shows nothing");
            assert_eq!(file["rows"], rows);
            for private in PRIVATE {
                assert!(!csv.contains(private), "{view} contains {private}:\n{csv}");
            }
            if view == "audit_staff_requests" {
                let boundaries = csv.lines().filter(|line| line.contains("boundary")).count();
                assert_eq!(boundaries, 2, "the day is [00:00, 24:00) in UTC:\n{csv}");
            }
        }
    }

    // A second export into the folder changes nothing.
    let before = fs::read(auditing.dir.path().join("csv/audit_orders.csv")).unwrap();
    assert!(auditing.fails("csv", "csv").contains("csv/audit_orders.csv exists"));
    assert_eq!(fs::read(auditing.dir.path().join("csv/audit_orders.csv")).unwrap(), before);
}

#[tokio::test]
async fn failed_export_leaves_only_partial_files() {
    let auditing = Auditing::start().await;
    let mut session = auditing.session().await;
    let partial = |out: &str, some: usize| {
        let names = auditing.names(out);
        assert!(names.len() >= some && names.iter().all(|name| name.ends_with(".partial")), "{names:?}");
    };
    for format in ["csv", "parquet"] {
        // A right is missing for one of the last views.
        sqlx::raw_sql("REVOKE SELECT ON audit_staff_actions FROM dispatchq_auditor")
            .execute(&mut session)
            .await
            .unwrap();
        let error = auditing.fails(format, format);
        assert!(error.contains("cannot export audit_staff_actions") && error.contains("roles.sql"), "{error}");
        partial(format, 14);
        sqlx::raw_sql("GRANT SELECT ON audit_staff_actions TO dispatchq_auditor").execute(&mut session).await.unwrap();

        // The disk is full.
        let full = format!("full-{format}");
        fs::create_dir(auditing.dir.path().join(&full)).unwrap();
        let first = auditing.dir.path().join(&full).join(format!("audit_events.{format}.partial"));
        symlink("/dev/full", first).unwrap();
        let error = auditing.fails(format, &full);
        assert!(error.contains("cannot export audit_events") && error.contains("No space left"), "{error}");
        partial(&full, 2);

        // Another export runs.
        let path = auditing.dir.path().join(format).join(format!("audit_orders.{format}.partial"));
        let running = File::options().write(true).open(path).unwrap();
        running.lock().unwrap();
        assert!(auditing.fails(format, format).contains("another export is writing"));
        partial(format, 14);
        drop(running);

        // The next export replaces what was left.
        let printed = auditing.export(format, format);
        assert_eq!(printed.code, Some(0), "{printed:?}");
        assert!(auditing.names(format).iter().all(|name| name.ends_with(format)));
    }
}

#[tokio::test]
async fn export_is_refused_with_the_remedy() {
    let t = TestApp::start().await;
    let dir = tempfile::tempdir().unwrap();
    let export = |url: &str, day: &str| {
        let args = ["export", "--day", day, "--format", "csv"];
        run_binary(dir.path(), &args, &[("DISPATCHQ_DATABASE__URL", url)])
    };
    let refused = |url: &str, day: &str, code: i32, text: &str| {
        let printed = export(url, day);
        assert!(printed.code == Some(code) && printed.stderr.contains(text), "{text}: {printed:?}");
    };
    refused(&t.postgres.url(), "2029-12-31", 1, "there is no role dispatchq_auditor; create the roles");
    grant(&t).await;
    refused(&url_of(&t, "dispatchq_run"), "2029-12-31", 1, "the login dispatchq_run may not become dispatchq_auditor");
    let auditor = url_of(&t, "dispatchq_auditor");
    refused(&auditor, "2030-02-30", 2, "expected a day such as 2026-03-01");
    refused(&auditor, DAY, 1, "export it after its end");
    refused("postgres://x@127.0.0.1:1/x", DAY, 1, "cannot reach Postgres");
    // Files without rows have the names of the columns. Any login that may become the auditor exports.
    let printed = export(&t.postgres.url(), "2029-12-31");
    assert_eq!(printed.code, Some(0), "{printed:?}");
    assert!(printed.stdout.contains("audit_orders.csv") && printed.stdout.contains("audit-2029-12-31"), "{printed:?}");
    let orders = fs::read_to_string(dir.path().join("audit-2029-12-31/audit_orders.csv")).unwrap();
    assert!(orders.starts_with("order_id,service_type,") && orders.lines().count() == 1, "{orders}");
}
