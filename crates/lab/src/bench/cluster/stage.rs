//! Installation on six Redis nodes.

use std::{collections::BTreeMap, fs};

use anyhow::Context;
use servers::{PostgresServer, RedisCluster};

use super::shard_command::ShardCommand;
use crate::{
    bench::{played::PlayedStage, processor::PidsByKind},
    testbed::{
        TestbedSettings, partner,
        processes::ChildProcesses,
        run_dir::RunDir,
        settings::{free_port, render_toml},
        start_private_postgres,
    },
};
use app::App;
use foundation::db::{self, Pool};
use partner_sim::PartnerSim;
use queue::Store;
use settings::Config;

/// Names of the Redis nodes and of the workers among the processes whose CPU time is read.
pub(super) const REDIS: &str = "redis";
pub(super) const WORKERS: &str = "workers";

// Dropped in this order: processes before the servers they use.
#[derive(Debug)]
pub(super) struct ClusterStage {
    pub(super) processes: ChildProcesses,
    /// This process's own connections to the servers.
    pub(super) app: App,
    pub(super) shards: ShardCommand,
    pub(super) sim: PartnerSim,
    /// Processes that ended unexpectedly.
    pub(super) problems: Vec<String>,
    pub(super) cluster: RedisCluster,
    pub(super) postgres: PostgresServer,
    pub(super) dir: RunDir,
}

impl ClusterStage {
    /// Starts the nodes, Postgres and the processes. Returns when all are ready.
    pub(super) async fn set_up(
        sim: PartnerSim,
        settings: &TestbedSettings,
        configure: impl FnOnce(&mut Config),
    ) -> anyhow::Result<Self> {
        let cluster = async { anyhow::Ok(RedisCluster::start().await?) };
        let (cluster, postgres) = tokio::try_join!(cluster, start_private_postgres())
            .context("the benchmark needs a private Redis Cluster and Postgres")?;
        let mut config = settings.build_config(&cluster.url(), &postgres.url());
        configure(&mut config);
        let db = db::connect_pool(&config.database).await?;
        db::migrate_schema(&db).await?;
        orders::service_types::publish(&db, &config).await?;
        db.close().await;
        let dir = RunDir::create_unique()?;
        let file = dir.config_file();
        fs::write(&file, render_toml(&config)?).with_context(|| format!("cannot write {}", file.display()))?;
        let mut addresses = vec![config.http.bind.clone()];
        addresses.extend((1..settings.serves).map(|_| format!("127.0.0.1:{}", free_port())));
        let app = App::connect(config).await?;
        let processes = ChildProcesses::start(dir.path(), &file, &addresses, settings.workers, settings.for_faults)?;
        let shards = ShardCommand::new(&file)?;
        let mut stage = Self { processes, app, shards, sim, problems: Vec::new(), cluster, postgres, dir };
        if let Err(error) = stage.processes.wait_until_ready().await {
            stage.dir.keep_files();
            return Err(error).with_context(|| format!("logs: {}", stage.dir.path().display()));
        }
        partner::call_back(&stage.sim, stage.bases().last().context("no API process was started")?)?;
        Ok(stage)
    }

    /// Returns the base URL of each `serve`, such as `http://127.0.0.1:8080`.
    pub(super) fn bases(&self) -> Vec<String> {
        self.processes.serve_addresses().iter().map(|address| format!("http://{address}")).collect()
    }

    /// Returns the shard with worker heartbeats, limits and breakers.
    pub(super) fn control_store(&self) -> &Store {
        &self.app.core.store
    }

    /// Reconnects to the servers after the number of shards has changed.
    pub(super) async fn connect_again(&mut self) -> anyhow::Result<()> {
        let config = (*self.app.config).clone();
        self.app.core.close().await;
        self.app = App::connect(config).await?;
        Ok(())
    }

    pub(super) fn pids(&self) -> PidsByKind {
        BTreeMap::from([
            ("api", self.processes.serve_pids().collect()),
            (WORKERS, self.processes.worker_pids().collect()),
            ("postgres", vec![self.postgres.pid()]),
            (REDIS, self.cluster.nodes().iter().map(servers::RedisServer::pid).collect()),
        ])
    }
}

impl PlayedStage for ClusterStage {
    fn db(&self) -> &Pool {
        &self.app.core.db
    }

    fn sim(&self) -> &PartnerSim {
        &self.sim
    }

    fn replace_ended_processes(&mut self) -> anyhow::Result<()> {
        self.problems.extend(self.processes.replace_ended()?);
        Ok(())
    }
}
