//! `serve` and `work` with only the rights of their role.

use std::{fs, path::Path};

use serde_json::{Value, json};
use servers::PostgresServer;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::support::{Child, Crowd, Fleet, Printed, eventually, hire, run_binary, secs, send_until_answered};
use app::{App, settings};

const DATABASE: &str = "least";

/// A database created by its roles on an empty server, and the Redis and directory of a fleet that does not run.
struct Roles {
    fleet: Fleet,
    _postgres: PostgresServer,
    superuser: String,
}

impl Roles {
    async fn start() -> Self {
        let fleet = Fleet::start().await;
        let postgres = PostgresServer::start().await.unwrap();
        let superuser = postgres.fresh_database(DATABASE).await.unwrap();
        let roles = Self { fleet, _postgres: postgres, superuser };
        roles.grant().await;
        let passwords = "ALTER ROLE dispatchq_migrate PASSWORD 'pw'; ALTER ROLE dispatchq_maintenance PASSWORD 'pw';
             ALTER ROLE dispatchq_run PASSWORD 'pw'; ALTER ROLE dispatchq_producer PASSWORD 'pw';
             ALTER ROLE dispatchq_auditor PASSWORD 'pw'";
        sqlx::raw_sql(passwords).execute(&mut roles.connect(None).await).await.unwrap();
        let migrated = roles.command("dispatchq_migrate", &["migrate"]);
        assert_eq!(migrated.code, Some(0), "{migrated:?}");
        roles.grant().await;
        roles
    }

    /// Runs the shipped roles file as an operator does.
    async fn grant(&self) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/postgres/roles.sql");
        let text = fs::read_to_string(file).unwrap();
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut self.connect(None).await).await.unwrap();
    }

    fn url(&self, role: &str) -> String {
        let (_, rest) = self.superuser.rsplit_once('@').unwrap();
        format!("postgres://{role}:pw@{rest}")
    }

    async fn connect(&self, role: Option<&str>) -> PgConnection {
        let url = role.map_or_else(|| self.superuser.clone(), |role| self.url(role));
        PgConnection::connect(&url).await.unwrap()
    }

    fn settings(&self, role: &str) -> [(&'static str, String); 2] {
        [
            ("DISPATCHQ_DATABASE__URL", self.url(role)),
            ("DISPATCHQ_DATABASE__MAINTENANCE_URL", self.url("dispatchq_maintenance")),
        ]
    }

    fn command(&self, role: &str, args: &[&str]) -> Printed {
        let settings = self.settings(role);
        let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        run_binary(self.fleet.dir(), args, &settings)
    }

    fn spawn(&self, name: &str, args: &[&str]) -> Child {
        let settings = self.settings("dispatchq_run");
        let mut settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        settings.push(("DISPATCHQ_WORKER__NAME", name));
        Child::spawn(self.fleet.dir(), name, args, &settings)
    }

    /// Returns the SQLSTATE of a failed statement of this role, or an empty string if it succeeds.
    async fn refusal(&self, role: &str, statement: &str) -> String {
        let done = sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut self.connect(Some(role)).await).await;
        let Err(error) = done else { return String::new() };
        error
            .as_database_error()
            .and_then(sqlx::error::DatabaseError::code)
            .unwrap_or_else(|| panic!("{error}"))
            .into_owned()
    }
}

// Fault S12
#[tokio::test]
async fn serve_and_work_need_only_run_role() {
    let roles = Roles::start().await;
    let api = roles.spawn("api", &["serve"]);
    let _worker = roles.spawn("w1", &["work"]);
    eventually("the API listens", || async { api.said("Serving the API", "address").is_some() }).await;
    let base = format!("http://{}", api.said("Serving the API", "address").unwrap());
    let key = roles.command("dispatchq_run", &["apikey", "create", "shop", "--role", "producer", "--json"]);
    let key: Value = serde_json::from_str(&key.stdout).unwrap_or_else(|_| panic!("{key:?}"));

    let mut config = settings::load_config(Some(&roles.fleet.dir().join("config.toml"))).unwrap();
    config.database.url = roles.url("dispatchq_run");
    let app = App::connect(config).await.unwrap();
    hire(&app, 3).await;
    let _crowd = Crowd::start(&app);
    let client = foundation::outbound::build_client(secs(10)).unwrap();
    for _ in 0..5 {
        let created = send_until_answered(
            client
                .post(format!("{base}/api/v1/orders"))
                .bearer_auth(key["key"].as_str().unwrap())
                .json(&json!({ "service_type": "RIDE", "pickup": { "latitude": -6.2, "longitude": 106.8 } })),
        )
        .await;
        assert_eq!(created.status().as_u16(), 201);
    }
    // A producer in SQL needs only the right to call the function.
    let create = "SELECT dispatchq_create_order('SQL-1', 'RIDE', -6.2, 106.8, actor => 'shop')";
    assert_eq!(roles.refusal("dispatchq_producer", create).await, "");
    let count = async |query: &'static str| -> i64 { sqlx::query_scalar(query).fetch_one(&app.core.db).await.unwrap() };
    eventually("all orders have ended", || async {
        count("SELECT count(*) FROM orders WHERE closed_at IS NOT NULL").await == 6
    })
    .await;
    for args in [["cleanup", "run"].as_slice(), &["check", "history"], &["doctor"], &["migrate", "--partitions"]] {
        let printed = roles.command("dispatchq_run", args);
        assert_eq!(printed.code, Some(0), "{args:?}: {printed:?}");
    }
    assert_eq!(count("SELECT count(*) FROM outbox WHERE state = 'dead'").await, 0);
    // Reads of staff with a scope are limited. The policies add no condition to other statements.
    for (service_type, seen) in [("RIDE", 6), ("RENT", 0)] {
        let scope = serde_json::from_value(json!({ "service_types": [service_type] })).unwrap();
        let scoped = app.clone().scoped(&scope);
        let found: i64 = sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(&scoped.core.db).await.unwrap();
        assert_eq!(found, seen, "{service_type}");
    }
    let plan: Vec<String> = sqlx::query_scalar("EXPLAIN (COSTS OFF) SELECT 1 FROM orders WHERE id = 'X'")
        .fetch_all(&app.core.db)
        .await
        .unwrap();
    assert!(plan.iter().all(|line| !line.contains("InitPlan")), "{plan:?}");
}

// Fault S12
// Rule F37: A login without rights on the tables is recorded as `sql:` and its name. It can name only its own producers
// and no key.
// Rule F37: A login cannot record another producer as the creator of its order.
// Rule F37: No role updates a table of records; records are removed by one function that takes an age.
// Rule F37: The function for erasures changes only records that name the driver.
#[tokio::test]
async fn each_role_may_do_its_own_and_no_more() {
    const DENIED: &str = "42501";
    let roles = Roles::start().await;
    for (role, statement) in [
        ("dispatchq_run", "CREATE TABLE mine (n integer)"),
        ("dispatchq_run", "ALTER TABLE orders ADD COLUMN mine integer"),
        ("dispatchq_run", "DROP TABLE alerts"),
        ("dispatchq_run", "TRUNCATE orders CASCADE"),
        ("dispatchq_run", "UPDATE order_events SET actor = 'me'"),
        ("dispatchq_run", "DELETE FROM order_events"),
        ("dispatchq_run", "UPDATE _sqlx_migrations SET success = false"),
        ("dispatchq_run", "UPDATE transaction_snapshots SET result = 'lost'"),
        ("dispatchq_run", "UPDATE transaction_snapshots_0 SET result = 'lost'"),
        ("dispatchq_run", "UPDATE binding_events SET actor = 'me'"),
        ("dispatchq_run", "UPDATE staff_actions SET actor = 'me'"),
        ("dispatchq_run", "DELETE FROM staff_actions"),
        ("dispatchq_run", "UPDATE staff_requests SET request = 'x'"),
        ("dispatchq_run", "DELETE FROM staff_requests"),
        ("dispatchq_run", "UPDATE admission_audit SET actor = 'me'"),
        ("dispatchq_run", "DELETE FROM admission_audit"),
        ("dispatchq_run", "UPDATE erasures SET actor = 'me'"),
        ("dispatchq_run", "DELETE FROM erasures"),
        ("dispatchq_run", "UPDATE outbox_attempts SET error = NULL"),
        ("dispatchq_run", "DELETE FROM outbox_attempts"),
        ("dispatchq_run", "UPDATE outbox_replays SET actor = 'me'"),
        ("dispatchq_run", "INSERT INTO sql_producers (login, owner) VALUES ('dispatchq_producer', 'shop')"),
        ("dispatchq_producer", "INSERT INTO sql_producers (login, owner) VALUES ('dispatchq_producer', 'shop')"),
        ("dispatchq_producer", "SELECT dispatchq_create_order('X', 'RIDE', 1, 2, owner => 'shop')"),
        ("dispatchq_producer", "SELECT dispatchq_create_order('X', 'RIDE', 1, 2, actor => 'producer:shop')"),
        ("dispatchq_producer", "SELECT * FROM dispatchq_remove_old_records('staff_actions', '{1}', '1 year')"),
        ("dispatchq_producer", "SELECT * FROM bindings"),
        ("dispatchq_producer", "SELECT * FROM plan_items"),
        ("dispatchq_producer", "SELECT * FROM orders"),
        ("dispatchq_producer", "INSERT INTO orders (id) SELECT id FROM orders"),
        ("dispatchq_auditor", "SELECT * FROM orders"),
        ("dispatchq_auditor", "SELECT dispatchq_create_order('X', 'RIDE', 1, 2)"),
        ("dispatchq_maintenance", "UPDATE orders SET version = 0"),
        ("dispatchq_maintenance", "SELECT * FROM api_keys"),
    ] {
        assert_eq!(roles.refusal(role, statement).await, DENIED, "{role}: {statement}");
    }
    for statement in [
        "INSERT INTO binding_watermarks (binding_id, removed_through, updated_at) VALUES ('B', 1, dispatchq_now())",
        "UPDATE binding_watermarks SET removed_through = 2",
        "DELETE FROM transaction_snapshots; DELETE FROM transactions; DELETE FROM binding_events; DELETE FROM bindings",
    ] {
        assert_eq!(roles.refusal("dispatchq_run", statement).await, "", "{statement}");
    }
    let mut owner = roles.connect(None).await;
    let odd = "INSERT INTO sql_producers (login, owner) VALUES ('dispatchq_producer', 'shop ')";
    sqlx::raw_sql(odd).execute(&mut owner).await.unwrap_err();
    let allow = "INSERT INTO sql_producers (login, owner) VALUES ('dispatchq_producer', 'shop')";
    sqlx::raw_sql(allow).execute(&mut owner).await.unwrap();
    for (order, more) in [
        ("SQL-1", "actor => 'admin:root', key_id => gen_random_uuid()"),
        ("SQL-2", "actor => 'producer:shop', key_id => gen_random_uuid()"),
        ("SQL-3", "owner => 'shop'"),
        ("SQL-4", "owner => 'other'"),
        ("SQL-5", "owner => 'shop', actor => 'producer:other'"),
    ] {
        let create = format!("SELECT dispatchq_create_order('{order}', 'RIDE', 1, 2, {more})");
        let refused = roles.refusal("dispatchq_producer", &create).await;
        assert_eq!(refused, if order == "SQL-4" { DENIED } else { "" }, "{create}");
    }
    let created: Vec<String> = sqlx::query_scalar(
        "SELECT concat_ws(' ', e.order_id, e.actor, o.owner, e.key_id) FROM order_events e JOIN orders o ON o.id = e.order_id
         ORDER BY e.order_id",
    )
    .fetch_all(&mut owner)
    .await
    .unwrap();
    assert_eq!(
        created,
        [
            "SQL-1 sql:dispatchq_producer",
            "SQL-2 producer:shop shop",
            "SQL-3 sql:dispatchq_producer shop",
            "SQL-5 sql:dispatchq_producer shop"
        ]
    );
    // The programs may name any producer as the creator of an order.
    let asked = "SELECT dispatchq_create_order('SQL-6', 'RIDE', 1, 2, actor => 'admin:root', owner => 'any')";
    assert_eq!(roles.refusal("dispatchq_run", asked).await, "");

    let records = "INSERT INTO staff_actions (at, actor, action, subject) VALUES
        (dispatchq_now() - interval '400 days', 'cli:old', 'A', 'x'), (dispatchq_now(), 'cli:new', 'A', 'x')";
    assert_eq!(roles.refusal("dispatchq_run", records).await, "");
    let remove = |age: &str| {
        format!("SELECT dispatchq_remove_old_records('staff_actions', ARRAY(SELECT id FROM staff_actions), '{age}')")
    };
    assert_eq!(roles.refusal("dispatchq_run", &remove("1 second")).await, "22023", "a day at least");
    assert_eq!(roles.refusal("dispatchq_run", &remove("1 year")).await, "");
    let left: Vec<String> = sqlx::query_scalar("SELECT actor FROM staff_actions").fetch_all(&mut owner).await.unwrap();
    assert_eq!(left, ["cli:new"]);
    let unmade = "SELECT dispatchq_redact_staff_actions(ARRAY(SELECT id FROM staff_actions), 'D1', 'erased-1')";
    assert_eq!(roles.refusal("dispatchq_run", unmade).await, DENIED, "without a recorded erasure");
    // An erasure that a program records itself opens only records that name the driver.
    let made = "INSERT INTO staff_actions (at, actor, action, subject, reason) VALUES
        (dispatchq_now(), 'cli:new', 'A', 'x', 'not to be hidden'), (dispatchq_now(), 'cli:new', 'A', 'x', 'as D1 asked'),
        (dispatchq_now(), 'cli:new', 'A', 'key D1', 'lost');
        INSERT INTO erasures (subject, subject_id, pseudonym, reason, actor) VALUES ('driver', 'D1', 'erased-1', 'r', 'cli:new')";
    for statement in made.split(';').chain([unmade]) {
        assert_eq!(roles.refusal("dispatchq_run", statement).await, "", "{statement}");
    }
    let kept = "SELECT concat_ws('|', subject, reason) FROM staff_actions WHERE subject <> 'x' OR reason IS NOT NULL ORDER BY id";
    let kept: Vec<String> = sqlx::query_scalar(kept).fetch_all(&mut owner).await.unwrap();
    assert_eq!(kept, ["x|not to be hidden", "key erased-1"]);
    for view in [
        "audit_orders",
        "audit_events",
        "audit_offers",
        "audit_notifications",
        "audit_bookings",
        "audit_bindings",
        "audit_transactions",
        "audit_provider_calls",
        "audit_binding_events",
        "audit_binding_notifications",
        "audit_plans",
        "audit_staff_requests",
    ] {
        assert_eq!(roles.refusal("dispatchq_auditor", &format!("SELECT * FROM {view}")).await, "", "{view}");
    }
    // The search path is fixed, so a function of the caller cannot replace one of these.
    let unsafe_functions: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_proc WHERE prosecdef AND pronamespace = 'public'::regnamespace
         AND NOT coalesce(proconfig::text LIKE '%search_path=pg_catalog, public, pg_temp%', false)",
    )
    .fetch_one(&mut roles.connect(None).await)
    .await
    .unwrap();
    assert_eq!(unsafe_functions, 0);
    let definers: i64 =
        sqlx::query_scalar("SELECT count(*) FROM pg_proc WHERE proname = 'dispatchq_create_order' AND prosecdef")
            .fetch_one(&mut roles.connect(None).await)
            .await
            .unwrap();
    assert!(definers >= 1);
}

// Fault S12
#[tokio::test]
async fn later_tables_are_usable_at_run_time() {
    let roles = Roles::start().await;
    let made =
        roles.refusal("dispatchq_migrate", "CREATE TABLE later (id bigint GENERATED ALWAYS AS IDENTITY, note text)");
    assert_eq!(made.await, "");
    assert_eq!(roles.refusal("dispatchq_run", "INSERT INTO later (note) VALUES ('x'); DELETE FROM later").await, "");
    // Maintenance drops a day that migrate has added.
    assert_eq!(roles.refusal("dispatchq_migrate", "SELECT dispatchq_add_history_day('2001-01-01')").await, "");
    let kept = roles.command("dispatchq_run", &["migrate", "--partitions", "--json"]);
    let kept: Value = serde_json::from_str(&kept.stdout).unwrap_or_else(|_| panic!("{kept:?}"));
    assert_eq!(kept["dropped"], json!(["2001-01-01"]), "{kept}");
}
