//! Installation of the benchmark: a testbed, the simulated provider, its servers, and the bindings.

use std::time::Duration;

use anyhow::{Context, bail};
use model::binding::{BindingCommand, BindingConfig, BindingId, ServerId};
use rand::RngExt;
use sqlx::{Connection, PgConnection};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    BindingsOptions,
    measure::CallMeasures,
    provider::{self, ProviderProcess},
};
use crate::{
    bench::processor::{PidsByKind, ProcessorWatch},
    testbed::{Testbed, TestbedSettings, print, processes::ChildKind, provider::SIMULATOR_HOST},
};
use app::App;
use bindings::{
    commands::{self, NewBinding},
    error::BindingError,
    servers as provider_servers,
    store::servers::ServerSettings,
};
use foundation::db;
use maintenance::audit;
use model::actor::{Actor, ActorRole};
use settings::{Config, ProviderConfig};

const ACTOR: Actor = Actor::with_fixed_name(ActorRole::Operator, "bench");
/// Name under which the worker processes are measured.
const WORKERS: &str = "workers";
/// Bindings that are created, started or stopped concurrently.
const AT_ONCE: usize = 64;
/// Attempts for a command while others change the binding.
const TRIES: usize = 20;
const TRY_PAUSE: Duration = Duration::from_millis(50);
/// Interval between checks for ended processes and for rest.
const LOOK: Duration = Duration::from_millis(100);
/// Timeout after the last stop. It covers an open call and its margin, the lease of a killed worker, and a repair.
const REST_WAIT: Duration = Duration::from_secs(120);
/// Statement timeout for checks of the history of a long run.
const CHECK_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum number of violations that are listed.
const MOST_TOLD: usize = 100;

// Dropping it ends all processes.
#[derive(Debug)]
pub(super) struct BindingsStage {
    pub(super) testbed: Testbed,
    pub(super) provider: ProviderProcess,
}

/// Returns an id such as `B-000001`.
pub(super) fn binding_id(n: u32) -> anyhow::Result<BindingId> {
    Ok(format!("B-{n:06}").parse()?)
}

/// Returns an id such as `S-0001`.
fn server_id(n: u32) -> anyhow::Result<ServerId> {
    Ok(format!("S-{n:04}").parse()?)
}

impl BindingsStage {
    /// Starts all processes and creates the servers, but no bindings.
    pub(super) async fn start(options: &BindingsOptions) -> anyhow::Result<Self> {
        let settings = TestbedSettings {
            workers: options.workers.get(),
            // Durable, because a claim must be durable before its call.
            durable: true,
            ..TestbedSettings::default()
        };
        let calls = options.calls;
        let configure = |config: &mut Config| {
            let provider = ProviderConfig {
                api_key: provider::API_KEY.to_owned(),
                hosts: vec![SIMULATOR_HOST.to_owned()],
                allow_private: true,
                ..ProviderConfig::default()
            };
            config.providers.insert(provider::NAME.into(), provider);
            config.bindings.max_concurrent_calls = calls;
            // The workers' metrics contain the time of claims.
            config.worker.admin_bind = "127.0.0.1:0".to_owned();
        };
        let mut testbed = Testbed::start_with(&settings, configure).await?;
        let provider = match ProviderProcess::start(&mut testbed.processes, options).await {
            Ok(provider) => provider,
            Err(error) => {
                testbed.dir.keep_files();
                return Err(error);
            }
        };
        let stage = Self { testbed, provider };
        stage.create_servers(options).await?;
        Ok(stage)
    }

    async fn create_servers(&self, options: &BindingsOptions) -> anyhow::Result<()> {
        for n in 1..=options.servers {
            let id = server_id(n)?;
            let settings = ServerSettings {
                provider: Some(provider::NAME.into()),
                base_url: Some(self.provider.server_url(&id)),
                max_concurrent: Some(i32::try_from(options.calls_per_server)?),
                ..ServerSettings::default()
            };
            provider_servers::create_server(&self.testbed.app.bindings, &id, &settings, &ACTOR).await?;
        }
        Ok(())
    }

    /// Creates the bindings in state STOPPED, each with its own account.
    pub(super) async fn create_bindings(&self, options: &BindingsOptions) -> anyhow::Result<()> {
        let config = BindingsOptions::binding_config(options.interval_ms(), options.interval_from());
        let servers = options.servers;
        run_for_each(options.bindings, |n| create_binding(self.testbed.app.clone(), n, servers, config.clone())).await
    }

    /// Sends the same command to every binding.
    pub(super) async fn command_bindings(&self, count: u32, command: &BindingCommand) -> anyhow::Result<()> {
        run_for_each(count, |n| command_binding(self.testbed.app.clone(), n, command.clone())).await
    }

    /// Reads the call metrics of the running workers.
    pub(super) async fn read_call_measures(&self) -> anyhow::Result<CallMeasures> {
        let workers = self.testbed.processes.worker_metrics();
        CallMeasures::read_workers(&workers.into_iter().map(|(_, address)| address).collect::<Vec<_>>()).await
    }

    /// Waits for this time. Returns a line for each process that ended unexpectedly.
    pub(super) async fn wait_for(&mut self, time: Duration) -> anyhow::Result<Vec<String>> {
        let (end, mut problems) = (Instant::now() + time, Vec::new());
        loop {
            problems.extend(self.testbed.processes.replace_ended()?);
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(problems);
            }
            sleep(LOOK.min(left)).await;
        }
    }

    /// Waits until every binding is STOPPED and IDLE. Returns a line for each process that ended unexpectedly, and one
    /// if not all bindings come to rest in time.
    pub(super) async fn wait_for_rest(&mut self) -> anyhow::Result<Vec<String>> {
        let (end, mut problems) = (Instant::now() + REST_WAIT, Vec::new());
        loop {
            problems.extend(self.wait_for(LOOK).await?);
            let restless: i64 = sqlx::query_scalar(
                "-- bindings that do not rest
                 SELECT count(*) FROM bindings WHERE state <> 'STOPPED' OR phase <> 'IDLE'",
            )
            .fetch_one(&self.testbed.app.core.db)
            .await?;
            if restless == 0 {
                return Ok(problems);
            }
            if Instant::now() >= end {
                problems.push(format!(
                    "{restless} bindings are not STOPPED and IDLE {REST_WAIT:?} after they were stopped"
                ));
                return Ok(problems);
            }
        }
    }

    /// Returns the pids of all measured processes.
    pub(super) fn pids_by_kind(&self) -> PidsByKind {
        let mut pids = self.testbed.pids_by_kind();
        pids.insert("provider_sim", vec![self.provider.pid]);
        pids
    }

    /// Kills a random worker, and starts another.
    pub(super) async fn kill_any_worker(&mut self, watch: &mut ProcessorWatch) -> anyhow::Result<()> {
        let pids: Vec<u32> = self.testbed.processes.worker_pids().collect();
        let index = rand::rng().random_range(0..pids.len().max(1));
        if let Some(pid) = pids.get(index) {
            watch.record_kill(WORKERS, *pid);
        }
        self.testbed.processes.kill(ChildKind::Work, index).await
    }
}

/// Prints the progress of the run.
pub(super) fn announce_step(options: &BindingsOptions, step: &str) {
    let _ = print::print_line(step, options.json);
}

/// Checks every invariant of the history. Returns a line for each violation.
pub(super) async fn check_history(app: &App) -> anyhow::Result<Vec<String>> {
    let mut config = (*app.config).clone();
    // The tables were just filled, so the planner needs fresh statistics.
    let mut session = PgConnection::connect(&config.database.url).await?;
    sqlx::raw_sql("ANALYZE").execute(&mut session).await?;
    session.close().await?;
    config.database.statement_timeout = CHECK_TIMEOUT;
    let db = db::connect_pool(&config.database).await?;
    let checking = App::new(config, db, app.core.store.clone())?;
    let found = audit::check_history(&checking.maintenance).await?;
    checking.core.close().await;
    let mut lines: Vec<String> = found.iter().take(MOST_TOLD).map(ToString::to_string).collect();
    if found.len() > MOST_TOLD {
        lines.push(format!("{} more violations of the history", found.len() - MOST_TOLD));
    }
    Ok(lines)
}

/// Runs `work` for 1..=`count` with limited concurrency. Stops at the first error.
async fn run_for_each<W>(count: u32, work: impl Fn(u32) -> W) -> anyhow::Result<()>
where
    W: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let mut under_way = JoinSet::new();
    for n in 1..=count {
        if under_way.len() >= AT_ONCE
            && let Some(ended) = under_way.join_next().await
        {
            ended.context("a task panicked")??;
        }
        under_way.spawn(work(n));
    }
    while let Some(ended) = under_way.join_next().await {
        ended.context("a task panicked")??;
    }
    Ok(())
}

async fn create_binding(app: App, n: u32, servers: u32, config: BindingConfig) -> anyhow::Result<()> {
    let new = NewBinding {
        id: binding_id(n)?,
        server_id: server_id((n - 1) % servers + 1)?,
        account_id: format!("A-{n:06}").parse()?,
        config,
    };
    commands::create_binding(&app.bindings, &new, &ACTOR).await?;
    Ok(())
}

/// Sends a command to a binding. Retries while others change the binding, or after a lost write.
async fn command_binding(app: App, n: u32, command: BindingCommand) -> anyhow::Result<()> {
    let id = binding_id(n)?;
    for _ in 0..TRIES {
        match commands::command_binding(&app.bindings, &id, &command, &ACTOR).await {
            Ok(_) => return Ok(()),
            Err(BindingError::Busy | BindingError::Batch(_)) => sleep(TRY_PAUSE).await,
            Err(error) => return Err(error).with_context(|| format!("{command:?} of binding {id}")),
        }
    }
    bail!("{command:?} of binding {id} did not succeed in {TRIES} tries")
}
