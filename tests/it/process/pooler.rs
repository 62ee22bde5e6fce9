//! Processes that reach Postgres through PgBouncer in transaction mode.

use std::{fs, path::Path};

use servers::PgBouncer;

use super::{assert_all_well, orders};
use crate::support::{Crowd, Fleet, TestApp, hire, run_binary};
use app::{App, settings};
use foundation::{
    config::database::DatabaseConfig,
    db::{self, Pool, lock},
    error::ServiceError,
};

/// Server sessions of the pooler.
const SESSIONS: usize = 12;

#[tokio::test]
async fn orders_end_rightly_through_a_pooler_that_shares_sessions() {
    let mut fleet = Fleet::start().await;
    let pooler = PgBouncer::start(&fleet.postgres).await.unwrap();
    let url = pooler.url();
    let keeps_statements = pooler.keeps_statements().to_string();
    let pooled = [
        ("DISPATCHQ_DATABASE__URL", url.as_str()),
        ("DISPATCHQ_DATABASE__POOLER", "true"),
        ("DISPATCHQ_DATABASE__POOLER_STATEMENTS", keeps_statements.as_str()),
    ];
    let mut config = settings::load_config(Some(&fleet.dir().join("config.toml"))).unwrap();
    config.database.url.clone_from(&url);
    config.database.pooler = true;
    config.database.pooler_statements = pooler.keeps_statements();
    fleet.app = App::connect(config).await.unwrap();

    // Two workers and this process have about fifty connections. The pooler has twelve sessions.
    let mut first = fleet.worker_with("w1", &pooled);
    let _second = fleet.worker_with("w2", &pooled);
    hire(&fleet.app, 40).await;
    orders(&fleet, "ORD", 40).await;
    fleet.reach(40, "SELECT count(*) FROM offers").await;
    assert!(!first.kill().success());
    let _third = fleet.worker_with("w3", &pooled);
    let _crowd = Crowd::start(&fleet.app);
    fleet.at_rest().await;
    assert_eq!(fleet.count("SELECT count(*) FROM orders WHERE status = 'COMPLETED'").await, 40);
    assert_all_well(&fleet).await;
    let checked = run_binary(fleet.dir(), &["check", "history"], &pooled);
    assert_eq!(checked.code, Some(0), "{checked:?}");

    // Settings that are normally sent when a connection opens apply here as well.
    let limit: String =
        sqlx::query_scalar("SELECT current_setting('statement_timeout')").fetch_one(&fleet.app.core.db).await.unwrap();
    assert_eq!(limit, "6s");
    let refused =
        sqlx::query("UPDATE orders SET version = version").execute(&fleet.app.core.read_only).await.unwrap_err();
    let code = refused.as_database_error().and_then(sqlx::error::DatabaseError::code);
    assert_eq!(code.as_deref(), Some("25006"), "{refused}");

    let migrated = run_binary(fleet.dir(), &["migrate"], &pooled);
    assert_eq!(migrated.code, Some(1));
    assert!(migrated.stderr.contains("directly at Postgres"), "{migrated:?}");
}

async fn ask_postgres(db: &Pool) -> Result<(), ServiceError> {
    sqlx::query("SELECT 1").execute(db).await?;
    Ok(())
}

/// A Postgres lock allows only one replica to work. It belongs to one transaction, because the next transaction may use
/// another session.
#[tokio::test]
async fn pooled_lock_lasts_exactly_as_its_work() {
    let t = TestApp::start().await;
    let pooler = PgBouncer::start(&t.postgres).await.unwrap();
    let config = DatabaseConfig { url: pooler.url(), pooler: true, ..t.app.config.database.clone() };
    let replicas = [db::connect_pool(&config).await.unwrap(), db::connect_pool(&config).await.unwrap()];
    let upkeep = replicas.each_ref().map(db::upkeep_pool);
    for number in 4_720..4_740 {
        let beside = async {
            // The pooler gives free sessions to other clients, with all session state.
            for _ in 0..SESSIONS {
                ask_postgres(&replicas[1]).await?;
            }
            lock::run_under_lock(&upkeep[1], number, ask_postgres(&replicas[1])).await
        };
        let done = lock::run_under_lock(&upkeep[0], number, beside).await.unwrap();
        assert_eq!(done, Some(None), "the other replica is told that one is at it");
        let turn = lock::run_under_lock(&upkeep[1], number, ask_postgres(&replicas[1])).await.unwrap();
        assert_eq!(turn, Some(()), "and then has its turn");
    }
    let held = t.count("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").await;
    assert_eq!(held, 0, "none stays in a session");
}

/// Returns whether a module of a package's tests contains a test of this name. With an empty name: whether the module
/// exists.
fn is_test(package: &str, module: &str, name: &str) -> bool {
    let folder = match package {
        "dispatchq" => "tests/it".to_owned(),
        "workers" => "workers/tests/it".to_owned(),
        "staff-console" => "crates/console/tests/it".to_owned(),
        capability => format!("crates/{capability}/tests/it"),
    };
    let path = format!("{folder}/{}", module.replace("::", "/"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let texts = [format!("{path}.rs"), format!("{path}/mod.rs")].map(|file| fs::read_to_string(root.join(file)));
    texts.iter().flatten().any(|text| name.is_empty() || text.contains(&format!(" fn {name}()")))
}

#[test]
fn tests_left_out_of_pooler_have_reasons() {
    let list = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pooler/left-out")).unwrap();
    let groups: Vec<&str> = list.split("\n\n").skip(1).collect();
    assert!(groups.len() >= 5, "{list}");
    for group in groups {
        let (reason, names) = group.split_once('\n').unwrap();
        assert!(reason.starts_with("# "), "no reason is given for {group}");
        for line in names.lines() {
            let (package, test) = line.split_once(' ').unwrap();
            let (module, name) = test.rsplit_once("::").unwrap();
            assert!(is_test(package, module, name), "tests/pooler/left-out names {line}, which is not there");
        }
    }
}
