//! The private Redis and Postgres that a run begins with.
//!
//! Postgres has the schema already: initdb and the migrations are most of what a short run would wait for. They are done once for
//! each build and day, and what they made is kept in the user's cache and copied.

use std::{env, net::SocketAddr, path::PathBuf};

use anyhow::Context;
use app::App;
use axum::Router;
use chrono::Utc;
use foundation::{config::database::DatabaseConfig, db};
use queue::Store;
use servers::{PostgresServer, RedisServer};
use settings::Config;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Starts both on free ports, and returns them with an `App` of this process. `change` is applied to the default configuration.
pub(crate) async fn start_private_app(
    change: impl FnOnce(&mut Config),
) -> anyhow::Result<(App, RedisServer, PostgresServer)> {
    let (redis, postgres) = start_servers(false).await?;
    let mut config = Config::defaults();
    config.redis.url = redis.url();
    config.database.url = postgres.url();
    change(&mut config);
    let db = db::connect_pool(&config.database).await?;
    db::migrate_schema(&db).await?;
    orders::service_types::publish(&db, &config).await?;
    let store = Store::connect(&config.redis.url).await?;
    Ok((App::new(config, db, store)?, redis, postgres))
}

/// Starts both on free ports, with throw-away data. A `durable` Postgres fsyncs as in production.
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

/// Serves a router on a free port of this machine until the guard is dropped. Returns its address.
pub(crate) async fn serve_local(router: Router) -> anyhow::Result<(SocketAddr, DropGuard)> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on 127.0.0.1")?;
    let (address, stop) = (listener.local_addr()?, CancellationToken::new());
    let serving = async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "A receiver of this run ended.");
        }
    };
    tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
    Ok((address, stop.drop_guard()))
}
