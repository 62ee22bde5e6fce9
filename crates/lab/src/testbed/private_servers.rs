//! Private Redis and Postgres of a run.
//!
//! Postgres starts with the schema. initdb and the migrations would be most of the waiting time of a short run. So they
//! run once for each build and day, and the result is kept in the user's cache and copied.

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

/// Starts both servers on free ports, and returns them with an `App` of this process. `change` is applied to the
/// default configuration.
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

/// Starts both servers on free ports, with throw-away data. A `durable` Postgres fsyncs as in production.
pub(super) async fn start_servers(durable: bool) -> anyhow::Result<(RedisServer, PostgresServer)> {
    let redis = async { anyhow::Ok(RedisServer::start().await?) };
    let postgres = async {
        let mut postgres = start_private_postgres().await?;
        if durable {
            postgres.restart_durable().await?;
        }
        anyhow::Ok(postgres)
    };
    tokio::try_join!(redis, postgres).context("cannot start a private Redis and Postgres")
}

/// Starts only Postgres, with throw-away data.
pub(crate) async fn start_private_postgres() -> anyhow::Result<PostgresServer> {
    let Some(folder) = template_folder() else { return Ok(PostgresServer::start().await?) };
    // The name contains the date, because a new schema has history partitions only from the day of its creation on.
    let name = format!("{}-{:016x}", Utc::now().date_naive(), db::schema_fingerprint());
    let migrate = async |url: String| {
        let pool = db::connect_pool(&DatabaseConfig { url, ..Config::defaults().database }).await?;
        db::migrate_schema(&pool).await?;
        pool.close().await;
        anyhow::Ok(())
    };
    match PostgresServer::start_prepared(&folder, &name, migrate).await {
        Ok(server) => Ok(server),
        // A broken cache only costs time: the run then migrates a new database.
        Err(error) => {
            let (folder, error) = (folder.display(), format!("{error:#}"));
            tracing::warn!(%folder, error, "The migrated database in this directory cannot be used; creating a new one.");
            Ok(PostgresServer::start().await?)
        }
    }
}

/// Returns the directory of the cache. `None` if the environment names none.
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
