//! `dispatchq bench upgrade`: two versions serve orders on one database and one Redis, through an upgrade, a rollback
//! and a second upgrade. Then it compares the answers to clients with the tables.
//!
//! The old version is another binary, this one is the new version. The clients are those of `chaos`. No faults are
//! injected, so no answer may be a failure.
//!
//! * `phases`: the version that migrates, joins or leaves in each phase. `stage`: servers, processes of both versions,
//!   and routing of requests.

mod phases;
mod stage;

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use tokio::time::Instant;

use self::{
    phases::{PHASES, UpgradePhase},
    stage::{SERVES, UpgradeStage, WORKERS},
};
use super::{
    chaos::{claims::ClaimLedger, client::ChaosClient, crowd::CrowdPlan},
    frame::{Figures, Measure},
    machine::IS_OPTIMIZED,
    played::{self, CalledParties, PlayedStage, RunningClients},
    spread::round_to_digits,
};
use crate::testbed::print;
use settings::Config;

/// Divisor for the durations of orders, of trips and of the partner: an order's half hour is a minute, an offer lives 4
/// s.
const SPEED: f64 = 30.0;
/// Seed of the clients' decisions.
const SEED: u64 = 1;
/// Drivers per order created per second. At this speed about ten of them are busy.
const DRIVERS_PER_RATE: u32 = 32;

#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
The old binary migrates a database. Two of its serve and two of its work processes run orders of a simulated partner and of \
simulated drivers. Then, while orders are open: this binary migrates; its processes join; the old ones leave one by one (SIGTERM); the old ones \
join again on the new schema, and the new ones leave; the new ones join again, and the old ones leave.\n\n\
At the end the run waits until every order is final or held and every message is delivered. It exits with 1 if an answer to a client \
contradicts the tables, an answer was a failure (5xx except 503), the history violates an invariant, or a process ended unexpectedly \
or not gracefully.\n\n\
Example:\n  dispatchq bench upgrade --old target/upgrade/old/release/dispatchq --seconds 240 --json > upgrade.json")]
pub struct UpgradeOptions {
    /// Binary of the previous version; only `migrate`, `serve` and `work` are used
    #[arg(long, value_name = "BINARY")]
    pub old: PathBuf,

    /// Number of orders created per second
    #[arg(long, value_name = "N", default_value = "20")]
    pub rate: NonZeroU32,

    /// Seconds in which orders are created, shared equally by eight phases; longer if processes take longer to start
    #[arg(long, value_name = "N", default_value = "240")]
    pub seconds: NonZeroU32,

    /// Print one JSON object; the tables go to stderr
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Serialize)]
struct UpgradePhaseFigures {
    name: &'static str,
    seconds: f64,
    /// Orders whose creation was answered.
    orders: usize,
    /// Lateness of the jobs of all workers. `None` if no worker reported it.
    p99_ms: Option<f64>,
}

impl Measure for UpgradeOptions {
    fn prints_json(&self) -> bool {
        self.json
    }

    async fn measure(&self) -> anyhow::Result<Figures> {
        let parties = CalledParties::start_listening(SEED, SPEED).await?;
        let settings = parties.settings(2 * SERVES, 2 * WORKERS);
        let CalledParties { sim, receivers, .. } = parties;
        let ledger = ClaimLedger::default();
        let client = ChaosClient::new(&[], ledger.clone())?;
        let configure = |config: &mut Config| {
            played::ask_several(config);
            played::clean_up_often(config);
        };
        let mut stage = UpgradeStage::set_up(&self.old, sim, client, &settings, configure).await?;
        let played = play_upgrade(self, &mut stage, &ledger).await;
        let (phases, mut violations) = stage.dir.keep_if_failed(played)?;

        violations.extend(played::let_long_polls_end(&stage.app.core.db).await?);
        let UpgradeStage { processes, app, redis, postgres, mut dir, problems, .. } = stage;
        violations.extend(problems);
        let (mut figures, claims) =
            played::verify_run(processes, &app, &ledger, &receivers, IS_OPTIMIZED, violations).await?;
        let failed = claims.failures.iter().map(|(answer, count)| format!("answered {answer}: {count} times"));
        figures.violations.extend(failed);
        app.core.close().await;
        figures.set("old", &self.old);
        figures.set("rate", self.rate);
        figures.set("seconds", self.seconds);
        figures.set("phases", phases);
        figures.keep_logs(&mut dir);
        drop((redis, postgres));
        Ok(figures)
    }
}

/// Runs all phases while orders are created. Returns the figures of each phase, and problems.
async fn play_upgrade(
    options: &UpgradeOptions,
    stage: &mut UpgradeStage,
    ledger: &ClaimLedger,
) -> anyhow::Result<(Vec<UpgradePhaseFigures>, Vec<String>)> {
    let drivers = options.rate.get().saturating_mul(DRIVERS_PER_RATE) as usize;
    let plan = CrowdPlan { name: "upgrade", seed: SEED, speed: SPEED, drivers };
    let mut running = RunningClients::start(&stage.app, plan, stage.client.clone(), options.rate).await?;
    let watch = stage.watch.clone();
    running.clients.spawn(async move {
        let _ = watch.run().await;
    });

    let mut phases = Vec::with_capacity(PHASES.len());
    for phase in &PHASES {
        phases.push(play_phase(options, stage, ledger, phase).await?);
    }
    let mut violations = played::name_idle_phases(phases.iter().map(|phase| (phase.name, phase.orders)));
    violations.extend(running.come_to_rest(stage).await?);
    Ok((phases, violations))
}

async fn play_phase(
    options: &UpgradeOptions,
    stage: &mut UpgradeStage,
    ledger: &ClaimLedger,
    phase: &UpgradePhase,
) -> anyhow::Result<UpgradePhaseFigures> {
    let _ = print::print_line(phase.name, options.json);
    let created = || ledger.lock_claims().created.len();
    let (begin, before) = (Instant::now(), created());
    for step in phase.steps {
        stage.perform_step(*step).await.with_context(|| format!("{step:?} in the phase {}", phase.name))?;
    }
    stage
        .wait_until(begin + Duration::from_secs(u64::from(options.seconds.get())).div_f64(PHASES.len() as f64))
        .await?;
    let end = Instant::now();
    Ok(UpgradePhaseFigures {
        name: phase.name,
        seconds: round_to_digits((end - begin).as_secs_f64(), 1),
        orders: created() - before,
        p99_ms: stage.watch.p99_ms(begin, end).map(|ms| round_to_digits(ms, 1)),
    })
}
