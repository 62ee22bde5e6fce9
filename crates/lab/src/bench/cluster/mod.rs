//! `dispatchq bench cluster`: runs orders on a Redis Cluster of three masters and three replicas. Nodes fail, and the
//! number of shards changes. Then it compares the answers to clients with the tables.
//!
//! The clients are those of `chaos`. Each phase performs one step.
//!
//! * `phases`: the plan of steps and shards. `steps`: performs the step of a phase.
//! * `nodes`: operations on the six nodes. `shard_command`: `dispatchq shards`, if this binary has it.
//! * `stage`: the installation. `lateness`: lateness of jobs, kept over flushes. `verdict`: lost, doubled and early
//!   attempts.

mod lateness;
mod nodes;
mod phases;
mod shard_command;
mod stage;
mod steps;
mod verdict;

use std::{num::NonZeroU32, time::Duration};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use self::{
    lateness::{LatenessBook, LatenessTotal},
    phases::{ClusterPhase, ClusterStep, plan_phases},
    stage::{ClusterStage, REDIS, WORKERS as WORKER_KIND},
    steps::{StepOutcome, take_step},
    verdict::judge_run,
};
use super::{
    chaos::{claims::ClaimLedger, client::ChaosClient, crowd::CrowdPlan, recovery},
    frame::{Bound, Figures, Measure},
    machine::IS_OPTIMIZED,
    played::{self, CalledParties, PlayedStage, RunningClients},
    processor::{ProcessorUse, ProcessorWatch},
    spread::round_to_digits,
};
use crate::testbed::{figures::JobLateness, print, settings::parse_number};
use settings::Config;

const SERVES: usize = 2;
const WORKERS: usize = 2;
/// Seed of the clients' decisions.
const SEED: u64 = 1;
/// Minimum time after a step: two checks of the timers.
const AFTER_STEP: Duration = Duration::from_secs(3);
/// Drivers per order created per second, at a speed of 30. About ten of them are busy.
const DRIVERS_PER_RATE: u32 = 32;
const USUAL_SPEED: f64 = 30.0;
const FASTEST: f64 = 60.0;

#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Two serve and two work processes run orders of a simulated partner and of simulated drivers, on three masters and three replicas. With \
one shard: a planned failover (CLUSTER FAILOVER); a master is killed (SIGKILL) and restarts; the queue's slot moves to another \
master key by key; a master is flushed. With 4 shards: a master is frozen together with its replica; a planned failover. With 16 \
shards: a master is flushed; slots move. Then the queue has 4 shards again. If this binary has no command shards, the phases \
with more than one shard are skipped and listed in the report.\n\n\
At the end the run waits until every order is final or held and every message is delivered. It exits with 1 if an answer to a client \
contradicts the tables, an order did not end, an attempt was made twice or ended early, the history violates an invariant, or a \
process ended unexpectedly or not gracefully. Speed is reported but does not affect the exit code.\n\n\
Example:\n  dispatchq bench cluster --seconds 280 --json > cluster.json")]
pub struct ClusterOptions {
    /// Number of orders created per second
    #[arg(long, value_name = "N", default_value = "20")]
    pub rate: NonZeroU32,

    /// Seconds in which orders are created, shared equally by the phases; longer if the cluster takes longer
    #[arg(long, value_name = "N", default_value = "280")]
    pub seconds: NonZeroU32,

    /// Divisor for the durations of orders, of trips and of the partner
    #[arg(long, value_name = "X", default_value_t = USUAL_SPEED, value_parser = parse_number(1.0, FASTEST))]
    pub speed: f64,

    /// Print one JSON object; the tables go to stderr
    #[arg(long)]
    pub json: bool,
}

impl ClusterOptions {
    /// Returns the minimum time of each of `phases` phases.
    fn phase_length(&self, phases: usize) -> Duration {
        Duration::from_secs(u64::from(self.seconds.get())).div_f64(phases.max(1) as f64)
    }

    /// Returns the number of drivers. At a lower speed trips take longer, so more drivers are needed.
    fn driver_count(&self) -> usize {
        (f64::from(self.rate.get().saturating_mul(DRIVERS_PER_RATE)) * (USUAL_SPEED / self.speed)).ceil() as usize
    }
}

impl Measure for ClusterOptions {
    fn prints_json(&self) -> bool {
        self.json
    }

    async fn measure(&self) -> anyhow::Result<Figures> {
        let parties = CalledParties::start_listening(SEED, self.speed).await?;
        let settings = parties.settings(SERVES, WORKERS);
        let CalledParties { sim, receivers, .. } = parties;
        let ledger = ClaimLedger::default();
        let configure = |config: &mut Config| {
            played::ask_several(config);
            played::ask_partners_for_long(config);
        };
        let mut stage = ClusterStage::set_up(sim, &settings, configure).await?;
        let played = play_cluster(self, &mut stage, &ledger).await;
        let RunOutcome { phases, left_out, totals, mut violations } = stage.dir.keep_if_failed(played)?;

        violations.extend(played::let_long_polls_end(&stage.app.core.db).await?);
        let ClusterStage { processes, app, cluster, postgres, mut dir, problems, .. } = stage;
        violations.extend(problems);
        let (mut figures, claims) =
            played::verify_run(processes, &app, &ledger, &receivers, IS_OPTIMIZED, violations).await?;
        let told: Vec<String> = claims.created.iter().map(|(_, order)| order.clone()).collect();
        let verdict = judge_run(&app.core.db, &told).await?;
        figures.violations.extend(verdict.found);
        app.core.close().await;
        figures.extend(json!({
            "shards": phases.iter().map(|phase| phase.shards).max().unwrap_or(1),
            "process_per_cpu_s": per_cpu_s(totals.lateness.job_count(), totals.processor_ms),
            "lateness_ms": totals.lateness.summarize(),
            "failovers": totals.failovers,
            "migrated_slots": totals.migrated_slots,
            "lost": verdict.lost,
            "doubled": verdict.doubled,
            "early": verdict.early,
            "rate": self.rate,
            "seconds": self.seconds,
            "speed": self.speed,
            "left_out": left_out,
        }));
        if let Some(times) = unreachable_p99_times(&phases) {
            figures.goal("unreachable_p99_times", times, Bound::AtMost(2.0));
        }
        figures.set("phases", phases);
        figures.keep_logs(&mut dir);
        drop((cluster, postgres));
        Ok(figures)
    }
}

/// Returns the p99 lateness of the other shards while a master was frozen, relative to the p99 of a phase at rest with
/// the same number of shards. Returns `None` if no master was frozen.
fn unreachable_p99_times(phases: &[ClusterPhaseFigures]) -> Option<f64> {
    let (shards, meanwhile) = phases.iter().find_map(|phase| Some((phase.shards, phase.meanwhile_ms?)))?;
    let rest = phases.iter().find(|phase| phase.at_rest && phase.shards == shards)?.lateness_ms;
    // Lateness is in whole milliseconds, so values below one count as one.
    Some(round_to_digits(meanwhile.p99.max(1) as f64 / rest.p99.max(1) as f64, 1))
}

#[derive(Debug, Serialize)]
struct ClusterPhaseFigures {
    name: &'static str,
    /// Number of shards at its end.
    shards: u16,
    /// Whether the phase had no step. Such phases are the baseline for other numbers of shards.
    at_rest: bool,
    /// Length of the phase.
    seconds: f64,
    /// Orders whose creation was answered.
    orders: usize,
    process_per_cpu_s: Option<f64>,
    /// Lateness of the jobs that started in the phase.
    lateness_ms: JobLateness,
    /// Time until the slot was served again, or all shards were settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_s: Option<f64>,
    /// Time from then on until no required timer was missing, or the reason why that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    timers_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    without_timers: Option<String>,
    /// Lateness of the other shards' jobs that started while a master was frozen.
    #[serde(skip_serializing_if = "Option::is_none")]
    meanwhile_ms: Option<JobLateness>,
}

/// Totals of all phases.
#[derive(Debug, Default)]
struct RunTotals {
    lateness: LatenessTotal,
    failovers: u32,
    migrated_slots: u32,
    processor_ms: u64,
}

impl RunTotals {
    /// Adds a phase. Returns its jobs per second of CPU time.
    fn add_phase(&mut self, jobs: &LatenessTotal, used: &ProcessorUse, step: &StepOutcome) -> Option<f64> {
        let of = |kind: &str| used.by_kind.get(kind).copied().unwrap_or_default();
        let processor_ms = of(WORKER_KIND) + of(REDIS);
        self.lateness.add(jobs);
        self.failovers += step.failovers;
        self.migrated_slots += step.migrated_slots;
        self.processor_ms += processor_ms;
        per_cpu_s(jobs.job_count(), processor_ms)
    }
}

/// Returns jobs per second of CPU time. `None` if the system does not report CPU time.
fn per_cpu_s(jobs: u64, processor_ms: u64) -> Option<f64> {
    (processor_ms > 0).then(|| (jobs as f64 * 1e4 / processor_ms as f64).round() / 10.0)
}

/// Results of a run, read when everything is at rest.
struct RunOutcome {
    phases: Vec<ClusterPhaseFigures>,
    /// Skipped phases.
    left_out: Vec<&'static str>,
    totals: RunTotals,
    violations: Vec<String>,
}

/// Runs all phases while orders are created.
async fn play_cluster(
    options: &ClusterOptions,
    stage: &mut ClusterStage,
    ledger: &ClaimLedger,
) -> anyhow::Result<RunOutcome> {
    let (planned, left_out) = plan_phases(stage.shards.is_known().await?);
    let plan = CrowdPlan { name: "cluster", seed: SEED, speed: options.speed, drivers: options.driver_count() };
    let client = ChaosClient::new(&stage.bases(), ledger.clone())?;
    let mut running = RunningClients::start(&stage.app, plan, client, options.rate).await?;
    let book = LatenessBook::default();
    running.clients.spawn(book.clone().keep_looking(stage.control_store().clone()));

    let (mut phases, mut totals) = (Vec::with_capacity(planned.len()), RunTotals::default());
    let length = options.phase_length(planned.len());
    for phase in &planned {
        let _ = print::print_line(phase.name, options.json);
        let played = play_phase(stage, phase, length, ledger, &book, &mut totals).await;
        phases.push(played.with_context(|| format!("{:?} in the phase {}", phase.step, phase.name))?);
    }
    let mut violations = played::name_idle_phases(phases.iter().map(|phase| (phase.name, phase.orders)));
    violations.extend(running.come_to_rest(stage).await?);
    Ok(RunOutcome { phases, left_out, totals, violations })
}

async fn play_phase(
    stage: &mut ClusterStage,
    phase: &ClusterPhase,
    length: Duration,
    ledger: &ClaimLedger,
    book: &LatenessBook,
    totals: &mut RunTotals,
) -> anyhow::Result<ClusterPhaseFigures> {
    let created = || ledger.lock_claims().created.len();
    let (begin, orders_before, jobs_before) = (Instant::now(), created(), book.total());
    let mut watch = ProcessorWatch::start(&stage.pids());
    let step = take_step(stage, phase, book, &mut watch).await?;
    let step_end = Instant::now();
    let end = (begin + length).max(step_end + AFTER_STEP);
    let app = stage.app.clone();
    let timers = async {
        if phase.step == ClusterStep::Rest {
            return None;
        }
        Some(recovery::wait_for_timers(&app.core, step_end, end).await)
    };
    let (waited, timers) = tokio::join!(stage.wait_until(end), timers);
    waited?;
    let used = watch.finish(&stage.pids());
    let jobs = book.total().since(&jobs_before);
    let processor = totals.add_phase(&jobs, &used, &step);
    Ok(ClusterPhaseFigures {
        name: phase.name,
        shards: phase.shards,
        at_rest: phase.step == ClusterStep::Rest,
        seconds: round_to_digits(begin.elapsed().as_secs_f64(), 1),
        orders: created() - orders_before,
        process_per_cpu_s: processor,
        lateness_ms: jobs.summarize(),
        step_s: step.took.map(|took| round_to_digits(took.as_secs_f64(), 2)),
        timers_s: timers.as_ref().and_then(|timers| timers.as_ref().ok()).map(|s| round_to_digits(*s, 1)),
        without_timers: timers.and_then(Result::err),
        meanwhile_ms: step.meanwhile.map(|jobs| jobs.summarize()),
    })
}
