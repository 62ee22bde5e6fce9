//! Servers, processes of both versions, and routing of requests.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use servers::{PostgresServer, RedisServer};
use tokio::time::sleep;

use super::phases::{RunningVersion, UpgradeStep};
use crate::{
    bench::{
        chaos::{client::ChaosClient, watch::LatenessWatch},
        played::PlayedStage,
    },
    testbed::{
        TestbedSettings, partner,
        processes::{ChildKind, ChildProcesses},
        run_dir::RunDir,
        settings::{free_port, render_differences},
    },
};
use app::App;
use foundation::db::{self, Pool};
use partner_sim::PartnerSim;
use queue::Store;
use settings::Config;

/// Number of processes of each version.
pub(super) const SERVES: usize = 2;
pub(super) const WORKERS: usize = 2;
/// Time between the last request to a `serve` and its SIGTERM.
const DRAIN: Duration = Duration::from_secs(1);

// Dropped in this order: processes before the servers they use.
#[derive(Debug)]
pub(super) struct UpgradeStage {
    pub(super) processes: ChildProcesses,
    /// This process's own connections to the servers.
    pub(super) app: App,
    pub(super) client: ChaosClient,
    pub(super) watch: LatenessWatch,
    pub(super) sim: PartnerSim,
    /// Processes that ended unexpectedly, or not gracefully.
    pub(super) problems: Vec<String>,
    old: PathBuf,
    new: PathBuf,
    pub(super) redis: RedisServer,
    pub(super) postgres: PostgresServer,
    pub(super) dir: RunDir,
}

impl UpgradeStage {
    /// Starts the servers, runs the migration of the old binary, and starts its processes.
    pub(super) async fn set_up(
        old: &Path,
        sim: PartnerSim,
        client: ChaosClient,
        settings: &TestbedSettings,
        configure: impl FnOnce(&mut Config),
    ) -> anyhow::Result<Self> {
        let old = fs::canonicalize(old).with_context(|| format!("the binary {} does not exist", old.display()))?;
        let new = std::env::current_exe().context("cannot find the dispatchq binary that is running")?;
        let (redis, postgres) = tokio::try_join!(RedisServer::start(), PostgresServer::start())
            .context("the benchmark needs a private Redis and Postgres")?;
        let mut config = settings.build_config(&redis.url(), &postgres.url());
        configure(&mut config);
        let dir = RunDir::create_unique()?;
        let file = dir.config_file();
        fs::write(&file, render_differences(&config)?).with_context(|| format!("cannot write {}", file.display()))?;
        let mut processes = ChildProcesses::start(dir.path(), &file, &[], 0, settings.for_faults)?;
        processes.use_program(&old);
        processes.run_command("migrate", "migrate-first").await?;
        let db = db::connect_pool(&config.database).await?;
        let store = Store::connect(&config.redis.url).await?;
        let app = App::new(config, db, store)?;
        let mut stage = Self {
            processes,
            app,
            client,
            watch: LatenessWatch::default(),
            sim,
            problems: Vec::new(),
            old,
            new,
            redis,
            postgres,
            dir,
        };
        stage.join(RunningVersion::Old).await?;
        Ok(stage)
    }

    pub(super) async fn perform_step(&mut self, step: UpgradeStep) -> anyhow::Result<()> {
        match step {
            UpgradeStep::Migrate(version) => {
                self.processes.use_program(&self.program_of(version));
                self.processes.run_command("migrate", &format!("migrate-{version:?}")).await
            }
            UpgradeStep::Join(version) => self.join(version).await,
            UpgradeStep::Leave(version) => self.leave(version).await,
        }
    }

    async fn join(&mut self, version: RunningVersion) -> anyhow::Result<()> {
        self.processes.use_program(&self.program_of(version));
        for _ in 0..SERVES {
            self.processes.start_serve(format!("127.0.0.1:{}", free_port()))?;
        }
        for _ in 0..WORKERS {
            self.processes.start_worker()?;
        }
        self.processes
            .wait_until_ready()
            .await
            .with_context(|| format!("the processes of {version:?} did not join"))?;
        self.watch.set_workers(self.processes.worker_metrics());
        self.route_requests(None)
    }

    /// Stops the processes of a version. If both versions are the same binary, stops those that joined first.
    async fn leave(&mut self, version: RunningVersion) -> anyhow::Result<()> {
        let program = self.program_of(version);
        for _ in 0..WORKERS {
            self.problems.extend(self.processes.end_oldest(ChildKind::Work, &program).await);
        }
        for _ in 0..SERVES {
            let leaving = self.processes.oldest_serve_of(&program).map(str::to_owned);
            self.route_requests(leaving.as_deref())?;
            sleep(DRAIN).await;
            self.problems.extend(self.processes.end_oldest(ChildKind::Serve, &program).await);
        }
        self.watch.set_workers(self.processes.worker_metrics());
        Ok(())
    }

    fn program_of(&self, version: RunningVersion) -> PathBuf {
        match version {
            RunningVersion::Old => self.old.clone(),
            RunningVersion::New => self.new.clone(),
        }
    }

    /// Routes requests of clients and the partner to all `serve` processes except the leaving one.
    fn route_requests(&self, leaving: Option<&str>) -> anyhow::Result<()> {
        let mut addresses = self.processes.serve_addresses();
        addresses.retain(|address| Some(address.as_str()) != leaving);
        let bases: Vec<String> = addresses.into_iter().map(|address| format!("http://{address}")).collect();
        partner::call_back(&self.sim, bases.last().context("no API process is left")?)?;
        self.client.set_bases(bases);
        Ok(())
    }
}

impl PlayedStage for UpgradeStage {
    fn db(&self) -> &Pool {
        &self.app.core.db
    }

    fn sim(&self) -> &PartnerSim {
        &self.sim
    }

    fn replace_ended_processes(&mut self) -> anyhow::Result<()> {
        let ended = self.processes.replace_ended()?;
        if !ended.is_empty() {
            self.problems.extend(ended);
            self.watch.set_workers(self.processes.worker_metrics());
        }
        Ok(())
    }
}
