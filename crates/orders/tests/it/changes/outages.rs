//! Postgres answers but refuses writes for a while, as in a failover. The processes recover without manual action.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use app::App;
use foundation::db::{self, readiness::PostgresState};
use test_support::{TestApp, eventually};

/// Runs each statement on a separate session that accepts writes.
async fn as_owner(url: &str, statements: &[&str]) {
    let mut session = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql("SET default_transaction_read_only = off").execute(&mut session).await.unwrap();
    for statement in statements {
        sqlx::raw_sql(AssertSqlSafe((*statement).to_owned())).execute(&mut session).await.unwrap();
    }
}

// Fault F2
/// A session keeps the read-only default with which it started, so it would refuse writes until it is closed.
#[tokio::test]
async fn a_connection_that_began_read_only_is_replaced() {
    let t = TestApp::start().await;
    let mut config = t.app.config.database.clone();
    config.max_connections = 1;
    as_owner(&config.url, &["ALTER ROLE dispatchq SET default_transaction_read_only = on"]).await;
    let pool = db::connect_pool(&config).await.unwrap();
    let write = async || sqlx::query("CREATE TABLE IF NOT EXISTS probe ()").execute(&pool).await;
    let refused = write().await.unwrap_err();
    assert!(db::is_transient(&refused), "{refused}");
    as_owner(&config.url, &["ALTER ROLE dispatchq RESET default_transaction_read_only"]).await;
    eventually("the pool takes writes", || async { write().await.is_ok() }).await;
}

// Fault F2
/// The readiness gate only reads. Its session would also stay read-only until it is closed.
#[tokio::test]
async fn a_gate_whose_session_began_read_only_opens() {
    let mut t = TestApp::start().await;
    as_owner(&t.app.config.database.url, &["ALTER ROLE dispatchq SET default_transaction_read_only = on"]).await;
    let pool = db::connect_pool(&t.app.config.database).await.unwrap();
    t.app = App::new((*t.app.config).clone(), pool, t.app.core.store.clone()).unwrap();
    let state = async || t.app.core.readiness.postgres_state().await;
    eventually("the gate is closed", async || state().await == PostgresState::ReadOnly).await;
    as_owner(&t.app.config.database.url, &["ALTER ROLE dispatchq RESET default_transaction_read_only"]).await;
    eventually("the gate opens", async || state().await == PostgresState::Writable).await;
}
