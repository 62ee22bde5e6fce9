//! Statements, as a Postgres with pg_stat_statements counts them.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::{Instant, sleep};

use crate::testbed::Testbed;
use foundation::db::Pool;

/// Until all processes have found the restarted Postgres.
const READY_WAIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// Has the Postgres of a testbed count its statements. The library that counts is loaded when Postgres starts: it is started again
/// below the processes, which outlive that.
pub(super) async fn count_statements(testbed: &mut Testbed) -> anyhow::Result<()> {
    let postgres = &mut testbed.postgres;
    postgres.run_statement("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'").await?;
    postgres
        .restart()
        .await
        .context("Postgres does not start with pg_stat_statements; is postgresql-contrib there?")?;
    postgres.run_statement("CREATE EXTENSION pg_stat_statements").await?;
    let deadline = Instant::now() + READY_WAIT;
    while !testbed.api.is_ready().await {
        if Instant::now() >= deadline {
            bail!("serve is not ready {READY_WAIT:?} after Postgres was started again");
        }
        sleep(LOOK).await;
    }
    Ok(())
}

/// Counts statements from zero.
pub(super) async fn reset_statements(db: &Pool) -> anyhow::Result<()> {
    sqlx::query("SELECT pg_stat_statements_reset()").execute(db).await?;
    Ok(())
}

/// Names of the product's statements, and how often each was issued since the last reset; `BEGIN` and `COMMIT` among them.
pub(super) async fn read_statements(db: &Pool) -> anyhow::Result<Vec<(String, i64)>> {
    let names = sqlx::query_as(
        "SELECT ltrim(split_part(query, E'\\n', 1), '- '), sum(calls)::bigint
         FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid AND d.datname = current_database()
         WHERE query LIKE '-- %' OR query IN ('BEGIN', 'COMMIT') GROUP BY 1",
    );
    Ok(names.fetch_all(db).await?)
}
