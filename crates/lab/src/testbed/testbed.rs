//! Private Redis and Postgres, the configuration, `serve` and `work`. Dropping it stops everything, whatever failed.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use serde::Serialize;
use servers::{PgBouncer, PostgresServer, RedisServer, TcpProxy};
use tokio::time::{Instant, sleep};

use super::{
    api::ApiClient,
    private_servers::start_servers,
    processes::ChildProcesses,
    run_dir::RunDir,
    settings::{self, TestbedSettings},
};
use app::App;
use foundation::db;
use queue::Store;
use settings::Config;

/// Timeout for `serve` and `work` to be ready.
const START_WAIT: Duration = Duration::from_secs(30);
const START_POLL: Duration = Duration::from_millis(50);

// Dropped in this order: processes before the servers they use.
#[derive(Debug)]
pub(crate) struct Testbed {
    pub(crate) processes: ChildProcesses,
    pub(crate) api: ApiClient,
    pub(crate) app: App,
    /// Base URL of each `serve`, such as `http://127.0.0.1:8080`.
    pub(crate) bases: Vec<String>,
    /// Proxies for faults.
    pub(crate) ways: Option<ServerProxies>,
    /// Pooler for the processes' sessions of Postgres, if the configuration enables it.
    _pooler: Option<PgBouncer>,
    pub(crate) redis: RedisServer,
    pub(crate) postgres: PostgresServer,
    pub(crate) dir: RunDir,
}

/// Proxies to the servers.
#[derive(Debug)]
pub(crate) struct ServerProxies {
    /// Proxies of the processes.
    pub(crate) redis: TcpProxy,
    pub(crate) postgres: TcpProxy,
    /// Proxy of this process. It leads to the current Redis and is never stuck.
    pub(crate) own_redis: TcpProxy,
}

impl ServerProxies {
    /// Starts the proxies. `postgres_port` is the port of Postgres, or of the pooler in front of it.
    async fn start(redis: &RedisServer, postgres_port: u16) -> anyhow::Result<Self> {
        Ok(Self {
            redis: TcpProxy::start(redis.port()).await?,
            postgres: TcpProxy::start(postgres_port).await?,
            own_redis: TcpProxy::start(redis.port()).await?,
        })
    }
}

/// Servers that keep running after a run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct KeptServers {
    pub(crate) database_url: String,
    pub(crate) redis_url: String,
    pub(crate) pids: ServerPids,
    /// Data directories, to be removed when the servers have ended.
    pub(crate) dirs: [PathBuf; 2],
    /// Configuration file for other commands: `dispatchq order list --config FILE`.
    pub(crate) config: PathBuf,
    /// Login for the console of `dispatchq serve --config FILE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) console: Option<ConsoleLogin>,
}

/// A console, and a key to sign in with.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ConsoleLogin {
    pub(crate) url: String,
    pub(crate) key: String,
}

impl ConsoleLogin {
    /// Returns a link that signs in. The key is after '#', so the browser sends it to no server in an address.
    pub(crate) fn sign_in_link(&self) -> String {
        format!("{}/login#key={}", self.url, self.key)
    }
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct ServerPids {
    pub(crate) postgres: u32,
    pub(crate) redis: u32,
}

impl Testbed {
    /// Starts everything and waits until it is ready. `change` is applied to the configuration.
    pub(crate) async fn start_with(
        settings: &TestbedSettings,
        change: impl FnOnce(&mut Config),
    ) -> anyhow::Result<Self> {
        let (redis, mut postgres) = start_servers(settings.durable).await?;
        if settings.counts_work {
            postgres.restart_for_counting().await?;
        }
        let mut config = settings.build_config(&redis.url(), &postgres.url());
        change(&mut config);
        let mut of_processes = config.clone();
        let pooler = if config.database.pooler { Some(PgBouncer::start(&postgres).await?) } else { None };
        of_processes.database.pooler_statements = pooler.as_ref().is_some_and(PgBouncer::keeps_statements);
        // This process migrates and monitors, so it connects to Postgres directly.
        config.database.pooler = false;
        let port = pooler.as_ref().map_or(postgres.port(), PgBouncer::port);
        of_processes.database.url = on_port(&config.database.url, postgres.port(), port);
        let ways = if settings.for_faults { Some(ServerProxies::start(&redis, port).await?) } else { None };
        let db = db::connect_pool(&config.database).await?;
        db::migrate_schema(&db).await?;
        orders::service_types::publish(&db, &config).await?;
        let mut dir = RunDir::create_unique()?;
        let file = dir.config_file();
        if let Some(ways) = &ways {
            of_processes.redis.url = format!("redis://127.0.0.1:{}/", ways.redis.port());
            of_processes.database.url = on_port(&config.database.url, postgres.port(), ways.postgres.port());
            config.redis.url = format!("redis://127.0.0.1:{}/", ways.own_redis.port());
        }
        let store = Store::connect(&config.redis.url).await?;
        fs::write(&file, settings::render_toml(&of_processes)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        let mut addresses = vec![config.http.bind.clone()];
        addresses.extend((1..settings.serves).map(|_| format!("127.0.0.1:{}", settings::free_port())));
        let bases: Vec<String> = addresses.iter().map(|address| format!("http://{address}")).collect();
        let api = ApiClient::new(bases[0].clone())?;
        let app = App::new(config, db, store)?;
        // Marks the empty Redis as complete. The workers would find that out by themselves, but later.
        let (run_id, marker) = (app.core.store.run_id().await?, app.core.store.begin_rebuild().await?);
        app.core.store.finish_rebuild(&marker, &run_id).await?;
        let show_metrics = settings.for_faults || !app.config.worker.admin_bind.is_empty();
        let processes = ChildProcesses::start(dir.path(), &file, &addresses, settings.workers, show_metrics)?;
        let mut testbed = Self { processes, api, app, bases, ways, _pooler: pooler, redis, postgres, dir };
        if let Err(error) = testbed.wait_until_ready(settings.workers).await {
            dir = testbed.dir;
            dir.keep_files();
            return Err(error);
        }
        Ok(testbed)
    }

    /// Returns the pids of all processes and servers, by kind.
    pub(crate) fn pids_by_kind(&self) -> BTreeMap<&'static str, Vec<u32>> {
        BTreeMap::from([
            ("api", self.processes.serve_pids().collect()),
            ("workers", self.processes.worker_pids().collect()),
            ("postgres", vec![self.postgres.pid()]),
            ("redis", vec![self.redis.pid()]),
        ])
    }

    async fn wait_until_ready(&mut self, workers: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_WAIT;
        loop {
            if let Some(ended) = self.processes.replace_ended()?.pop() {
                bail!("{ended}");
            }
            let at_work = self.app.core.store.list_workers().await?.len();
            if at_work >= workers.max(1) && self.api.is_ready().await {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!(
                    "not ready within {START_WAIT:?}: {at_work} of {workers} workers; serve: {}\nwork-1: {}",
                    self.processes.log_tail("serve"),
                    self.processes.log_tail("work-1")
                );
            }
            sleep(START_POLL).await;
        }
    }

    /// Leaves Redis and Postgres running. The processes must have been stopped.
    pub(crate) fn keep_servers(redis: RedisServer, postgres: PostgresServer, dir: &mut RunDir) -> KeptServers {
        dir.keep_files();
        let (redis, postgres) = (redis.detach(), postgres.detach());
        KeptServers {
            database_url: postgres.url,
            redis_url: redis.url,
            pids: ServerPids { postgres: postgres.pid, redis: redis.pid },
            dirs: [postgres.dir, redis.dir],
            config: dir.config_file(),
            console: None,
        }
    }

    /// Splits the testbed, to stop its parts one by one.
    pub(crate) fn into_parts(self) -> (ChildProcesses, App, RedisServer, PostgresServer, RunDir) {
        (self.processes, self.app, self.redis, self.postgres, self.dir)
    }
}

/// Returns the URL of the same database on another port.
fn on_port(url: &str, port: u16, other: u16) -> String {
    url.replace(&format!(":{port}/"), &format!(":{other}/"))
}
