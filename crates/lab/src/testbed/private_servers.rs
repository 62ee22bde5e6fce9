//! The private Redis and Postgres that a run begins with.
//!
//! Postgres has the schema already: initdb and the migrations are most of what a short run would wait for. They are done once for
//! each build and day, and what they made is kept in the user's cache and copied.

use std::{env, path::PathBuf};

use anyhow::Context;
use chrono::Utc;
use dispatch::config::Config;
use foundation::{config::database::DatabaseConfig, db};
use servers::{PostgresServer, RedisServer};

/// Starts both on free ports, with throw-away data.
pub(crate) async fn start_private_servers() -> anyhow::Result<(RedisServer, PostgresServer)> {
    start_servers(false).await
}

/// As [`start_private_servers`]; a `durable` Postgres fsyncs as in production, for figures of what that costs.
pub(super) async fn start_servers(durable: bool) -> anyhow::Result<(RedisServer, PostgresServer)> {
    let redis = async { anyhow::Ok(RedisServer::start().await?) };
    let postgres = async {
        let mut postgres = start_private_postgres().await?;
        if durable {
            postgres.restart_durable().await?;
        }
        anyhow::Ok(postgres)
    };
    tokio::try_join!(redis, postgres).context("this needs a Redis and a Postgres of its own")
}

/// Starts a Postgres alone, with throw-away data.
pub(crate) async fn start_private_postgres() -> anyhow::Result<PostgresServer> {
    let Some(folder) = template_folder() else { return Ok(PostgresServer::start().await?) };
    // Of one day: the schema begins with the days of the history from the day it was made.
    let name = format!("{}-{:016x}", Utc::now().date_naive(), db::schema_fingerprint());
    let migrate = async |url: String| {
        let pool = db::connect_pool(&DatabaseConfig { url, ..Config::defaults().database }).await?;
        db::migrate_schema(&pool).await?;
        pool.close().await;
        anyhow::Ok(())
    };
    match PostgresServer::start_prepared(&folder, &name, migrate).await {
        Ok(server) => Ok(server),
        // A cache that is of no use costs time, and nothing else: each run migrates what it starts with.
        Err(error) => {
            let (folder, error) = (folder.display(), format!("{error:#}"));
            tracing::warn!(%folder, error, "The migrated database of this folder cannot be used; a new one is made.");
            Ok(PostgresServer::start().await?)
        }
    }
}

/// `None`: the environment names no folder for a cache.
fn template_folder() -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(|| Some(env::home_dir()?.join(".cache")))?;
    Some(cache.join("dispatchq/templates"))
}
