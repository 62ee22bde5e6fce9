//! Faults of Postgres. They use their own connections, not the proxy.

use anyhow::Context;
use sqlx::{Connection, PgConnection};

use super::{schedule::PlannedFault, stage::ChaosStage};
use crate::{
    bench::played::PlayedStage,
    testbed::{Testbed, processes::ChildKind},
};
use maintenance::periodic::cleanup;

async fn connect_to_postgres(testbed: &Testbed) -> anyhow::Result<PgConnection> {
    PgConnection::connect(&testbed.postgres.url()).await.context("cannot connect to Postgres to inflict a fault")
}

/// Ends every session except this one.
pub(super) async fn terminate_sessions(testbed: &Testbed) -> anyhow::Result<()> {
    let mut connection = connect_to_postgres(testbed).await?;
    end_sessions(&mut connection).await?;
    Ok(connection.close().await?)
}

async fn end_sessions(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- end sessions
         SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
    )
    .execute(connection)
    .await
    .map(drop)
}

/// Makes new sessions read-only, or writable again. Ends existing sessions, like a failover.
pub(super) async fn set_read_only(testbed: &Testbed, read_only: bool) -> anyhow::Result<()> {
    let mut connection = connect_to_postgres(testbed).await?;
    let set = if read_only {
        "ALTER SYSTEM SET default_transaction_read_only = on"
    } else {
        "ALTER SYSTEM RESET default_transaction_read_only"
    };
    sqlx::query(set).execute(&mut connection).await?;
    sqlx::query("SELECT pg_reload_conf()").execute(&mut connection).await?;
    end_sessions(&mut connection).await?;
    Ok(connection.close().await?)
}

/// Keeps a transaction open that has read the history, while the cleanup runs and a new worker maintains the
/// partitions. One partition is missing.
pub(super) async fn read_for_long(stage: &mut ChaosStage, planned: &PlannedFault) -> anyhow::Result<()> {
    let mut connection = connect_to_postgres(&stage.testbed).await?;
    drop_last_partition(&mut connection).await?;
    let mut reader = connection.begin().await?;
    let events: i64 = sqlx::query_scalar(
        "-- read the history
         SELECT count(*) FROM audit_events",
    )
    .fetch_one(&mut *reader)
    .await?;
    tracing::debug!(events, "A transaction that has read the history stays open.");
    stage.testbed.processes.kill(ChildKind::Work, 0).await?;
    let app = stage.testbed.app.clone();
    let cleaning =
        tokio::spawn(async move { cleanup::run(&app.maintenance, cleanup::CleanupMode::Remove).await.map(drop) });
    let waited = stage.wait_for(planned.lasts).await;
    reader.rollback().await?;
    connection.close().await?;
    // The reader blocks the cleanup, so an unfinished cleanup is not an error.
    cleaning.abort();
    waited
}

/// Drops the last day of the history, which has no events yet. The next maintenance creates it again.
async fn drop_last_partition(connection: &mut PgConnection) -> anyhow::Result<()> {
    sqlx::query("SET lock_timeout = '2s'").execute(&mut *connection).await?;
    let dropped = sqlx::query(
        "DO $$ BEGIN
             EXECUTE (SELECT format('DROP TABLE %I', max(c.relname)) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                      WHERE i.inhparent = 'order_events'::regclass AND c.relname ~ '[0-9]$');
         END $$",
    )
    .execute(&mut *connection)
    .await;
    if let Err(error) = dropped {
        tracing::debug!(%error, "The last partition stays.");
    }
    Ok(())
}
