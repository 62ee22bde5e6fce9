//! Shared parts of `chaos`, `upgrade` and `cluster`: orders are created while something happens to an installation.
//! Then everything comes to rest, and the answers to clients are compared with the tables.

use std::{num::NonZeroU32, time::Duration};

use partner_sim::{PartnerSim, PartnerSimOptions};
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    chaos::{
        claims::{ClaimLedger, ClientClaims},
        client::ChaosClient,
        crowd::{ChaosCrowd, CrowdPlan},
        producers::{self, BROADCAST, ONE_BY_ONE},
        verify,
    },
    frame::Figures,
    receivers::{ALERTS, MessageReceivers, OFFERS},
};
use crate::testbed::{
    TestbedSettings, figures, partner, processes::ChildProcesses, rest::OpenWork, settings::real_policy,
};
use app::App;
use foundation::db::Pool;
use settings::{Config, ScheduledTask, TaskSchedule};

/// Longer than any run: producers create orders until they are stopped.
const UNTIL_STOPPED: Duration = Duration::from_secs(7 * 24 * 3600);
/// Postgres sessions of each process. Up to eight processes run on two cores. With more sessions, timers were late for
/// longer after a fault that ended all of them.
const CONNECTIONS: u32 = 6;
const CLEANUP_EVERY: Duration = Duration::from_secs(20);
/// Retention of bookings at the partner, and maximum polling time. The speed does not divide them.
const PARTNER_KEEPS: Duration = Duration::from_secs(7 * 24 * 3600);
const POLL_BUDGET: Duration = Duration::from_secs(3600);
/// Interval between checks for ended processes.
const PROCESS_LOOK: Duration = Duration::from_millis(250);
const REST_LOOK: Duration = Duration::from_millis(500);
/// Extra time to come to rest after an order's lifetime: a lease, a repair, backoff of messages.
const SLACK: Duration = Duration::from_secs(120);
/// Time for long polls to end.
const LONG_POLLS: Duration = Duration::from_secs(5);

/// Simulated partner and receivers that an installation calls.
#[derive(Debug)]
pub(super) struct CalledParties {
    pub(super) sim: PartnerSim,
    pub(super) sim_options: PartnerSimOptions,
    pub(super) receivers: MessageReceivers,
}

impl CalledParties {
    pub(super) async fn start_listening(seed: u64, speed: f64) -> anyhow::Result<Self> {
        let sim_options =
            PartnerSimOptions { seed, speed, keep_finished: PARTNER_KEEPS, ..PartnerSimOptions::default() };
        let sim = partner::start(&sim_options).await?;
        Ok(Self { sim, sim_options, receivers: MessageReceivers::start_listening().await? })
    }

    /// Returns the settings of an installation that calls them. Its workers serve health and metrics.
    pub(super) fn settings(&self, serves: usize, workers: usize) -> TestbedSettings {
        TestbedSettings {
            speed: self.sim_options.speed,
            serves,
            workers,
            for_faults: true,
            offers: Some(self.receivers.webhook_target(OFFERS)),
            alerts: Some(self.receivers.webhook_target(ALERTS)),
            partner: Some(partner::served_by(&self.sim, &self.sim_options)),
            ..TestbedSettings::default()
        }
    }
}

/// Producers and drivers of a run whose orders are created until it is stopped. Dropping it stops them.
pub(super) struct RunningClients {
    pub(super) crowd: ChaosCrowd,
    pub(super) clients: JoinSet<()>,
    creating: JoinSet<()>,
}

impl RunningClients {
    pub(super) async fn start(
        app: &App,
        plan: CrowdPlan,
        client: ChaosClient,
        rate: NonZeroU32,
    ) -> anyhow::Result<Self> {
        let (crowd, clients) = ChaosCrowd::send_in(app, plan, client).await?;
        let mut creating = JoinSet::new();
        creating.spawn(producers::create_orders(crowd.clone(), rate, None, UNTIL_STOPPED));
        Ok(Self { crowd, clients, creating })
    }

    /// Stops the creations and waits until everything is at rest. Returns problems.
    pub(super) async fn come_to_rest(mut self, stage: &mut impl PlayedStage) -> anyhow::Result<Vec<String>> {
        // Clients that still wait for an answer hang up. They got no answer, so nothing is verified for them.
        self.creating.shutdown().await;
        let violations = stage.come_to_rest(self.crowd.speed).await?;
        self.crowd.stop.cancel();
        Ok(violations)
    }
}

/// Configures one service type to offer each order to three drivers at once.
pub(super) fn ask_several(config: &mut Config) {
    config.database.max_connections = CONNECTIONS;
    config.service_types.entry(BROADCAST.into()).or_default().ask_at_once = Some(3);
}

/// Configures frequent cleanups.
pub(super) fn clean_up_often(config: &mut Config) {
    config.schedules.insert(ScheduledTask::Cleanup, TaskSchedule::Every(CLEANUP_EVERY));
}

/// Extends the time that partners are polled. With an order lifetime of 30 s, a fault is as long as 10 minutes with a
/// lifetime of 30 minutes, so polling would end before the trip.
pub(super) fn ask_partners_for_long(config: &mut Config) {
    for partner in config.partners.values_mut() {
        partner.poll.budget = POLL_BUDGET;
    }
}

/// An installation with faults or other operations.
pub(super) trait PlayedStage {
    fn db(&self) -> &Pool;
    fn sim(&self) -> &PartnerSim;
    /// Replaces processes that ended unexpectedly, and records the problems.
    fn replace_ended_processes(&mut self) -> anyhow::Result<()>;

    /// Waits until `end`. Replaces processes that end unexpectedly.
    async fn wait_until(&mut self, end: Instant) -> anyhow::Result<()> {
        loop {
            self.replace_ended_processes()?;
            let now = Instant::now();
            if now >= end {
                return Ok(());
            }
            sleep(PROCESS_LOOK.min(end - now)).await;
        }
    }

    async fn wait_for(&mut self, time: Duration) -> anyhow::Result<()> {
        self.wait_until(Instant::now() + time).await
    }

    /// Waits until every order is final, driven or held, and nothing waits to be delivered. Returns problems.
    async fn come_to_rest(&mut self, speed: f64) -> anyhow::Result<Vec<String>> {
        let patience = real_policy(ONE_BY_ONE).lifetime.div_f64(speed) + SLACK;
        let end = Instant::now() + patience;
        loop {
            self.wait_for(REST_LOOK).await?;
            let open = OpenWork::read_open_work(self.db(), Some(self.sim())).await?;
            if open.is_rest() {
                return Ok(Vec::new());
            }
            if Instant::now() > end {
                let mut lines = vec![open.describe_open_work(self.db(), patience).await?];
                lines.extend(verify::open_orders(self.db()).await?);
                return Ok(lines);
            }
        }
    }
}

/// Returns a line for each phase without orders.
pub(super) fn name_idle_phases(orders_of_phases: impl Iterator<Item = (&'static str, usize)>) -> Vec<String> {
    let idle = orders_of_phases.filter(|(_, orders)| *orders == 0);
    idle.map(|(phase, _)| format!("no order was created in the phase {phase}")).collect()
}

/// Waits for long polls to end. Returns sessions that they left in a transaction.
pub(super) async fn let_long_polls_end(db: &Pool) -> anyhow::Result<Vec<String>> {
    sleep(LONG_POLLS).await;
    Ok(verify::idle_in_transaction(db).await?)
}

/// Stops the processes and compares the answers to clients with the tables. Returns the figures that all these runs
/// have.
pub(super) async fn verify_run(
    processes: ChildProcesses,
    app: &App,
    ledger: &ClaimLedger,
    receivers: &MessageReceivers,
    judges_time: bool,
    mut violations: Vec<String>,
) -> anyhow::Result<(Figures, ClientClaims)> {
    let messages = verify::count_delivered_messages(&app.core.db).await?;
    let kills = processes.kill_count();
    violations.extend(processes.stop().await);
    let claims = ledger.lock_claims().clone();
    violations.extend(verify::verify_claims(&app.core, &claims, receivers).await?);
    violations.extend(verify::verify_history(&app.maintenance, judges_time).await?);
    let outcomes = figures::count_outcomes(&app.core.db).await?;
    let mut figures = Figures::new(json!({
        "orders": outcomes.orders,
        "outcomes": outcomes.by_status,
        "held": outcomes.held,
        "bookings": figures::count_bookings(&app.core.db).await?,
        "requests": claims.requests,
        "refusals": claims.refusals,
        "hangups": claims.hang_ups,
        "failures": claims.failures,
        "messages": messages,
        "repairs": figures::count_repairs(&app.core.db).await?,
        "kills": kills,
    }));
    figures.violations = violations;
    Ok((figures, claims))
}
