//! From the first order to the verdict.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::{task::JoinSet, time::Instant};

use super::{
    lateness::LatenessBook,
    options::ClusterOptions,
    phases::{ClusterPhase, ClusterStep, plan_phases},
    report::{ClusterGoals, ClusterPhaseReport, ClusterReport, RunTotals},
    stage::ClusterStage,
    steps::take_step,
    verdict::judge_run,
};
use crate::{
    bench::{
        chaos::{
            claims::ClaimLedger,
            client::ChaosClient,
            crowd::{ChaosCrowd, CrowdPlan},
            producers, recovery,
        },
        machine::{MachineInfo, SoftwareVersions},
        played::{self, CalledParties, PlayedStage, UNTIL_STOPPED},
        processor::ProcessorWatch,
    },
    testbed::{figures, print, signals::wait_for_interrupt},
};
use dispatch::config::Config;

const SERVES: usize = 2;
const WORKERS: usize = 2;
/// Decides what clients want.
const SEED: u64 = 1;
/// Time that follows a step at least: two looks at the timers.
const AFTER_STEP: Duration = Duration::from_secs(3);

/// Runs, prints the report, and answers whether nothing is wrong.
pub async fn run(options: ClusterOptions) -> anyhow::Result<bool> {
    // Dropping it stops all processes and servers of the run.
    let report = tokio::select! {
        report = measure_cluster(&options) => report?,
        name = wait_for_interrupt() => bail!("the run was interrupted by {name}"),
    };
    print::print_report(&report.to_text(), &serde_json::to_value(&report)?, options.json)?;
    Ok(report.violations.is_empty())
}

async fn measure_cluster(options: &ClusterOptions) -> anyhow::Result<ClusterReport> {
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let parties = CalledParties::start_listening(SEED, options.speed).await?;
    let settings = parties.settings(SERVES, WORKERS);
    let CalledParties { sim, receivers, .. } = parties;
    let ledger = ClaimLedger::default();
    let mut stage = ClusterStage::set_up(sim, &settings, configure).await?;
    let played = play_cluster(options, &mut stage, &ledger).await;
    if played.is_err() {
        stage.dir.keep_files();
    }
    let RunOutcome { phases, left_out, totals, mut violations } =
        played.with_context(|| format!("the run failed; logs: {}", stage.dir.path().display()))?;

    violations.extend(played::let_long_polls_end(&stage.app.db).await?);
    let ClusterStage { processes, app, cluster, postgres, mut dir, problems, .. } = stage;
    violations.extend(problems);
    let claims =
        played::stop_and_verify(processes, &app, &ledger, &receivers, versions.optimized, &mut violations).await?;
    let told: Vec<String> = claims.created.iter().map(|(_, order)| order.clone()).collect();
    let verdict = judge_run(&app.db, &told).await?;
    violations.extend(verdict.found.iter().cloned());
    let outcomes = figures::count_outcomes(&app.db).await?;
    let repairs = figures::count_repairs(&app.db).await?;
    app.close().await;
    let logs = played::keep_logs(&mut dir, &violations);
    drop((cluster, postgres));
    Ok(ClusterReport {
        shards: phases.iter().map(|phase| phase.shards).max().unwrap_or(1),
        process_per_cpu_s: totals.jobs_per_cpu_s(),
        lateness_ms: totals.lateness.summarize(),
        failovers: totals.failovers,
        migrated_slots: totals.migrated_slots,
        lost: verdict.lost,
        doubled: verdict.doubled,
        early: verdict.early,
        goals: ClusterGoals::from_phases(&phases),
        rate: options.rate.get(),
        seconds: options.seconds.get(),
        speed: options.speed,
        phases,
        left_out,
        orders: outcomes.orders,
        outcomes: outcomes.by_status,
        requests: claims.requests,
        failures: claims.failures,
        repairs,
        machine,
        versions,
        violations,
        logs,
    })
}

fn configure(config: &mut Config) {
    played::ask_several(config);
    played::ask_partners_for_long(config);
}

/// What is known when everything is at rest.
struct RunOutcome {
    phases: Vec<ClusterPhaseReport>,
    /// Phases that were left out.
    left_out: Vec<&'static str>,
    totals: RunTotals,
    violations: Vec<String>,
}

/// Orders are created through all phases.
async fn play_cluster(
    options: &ClusterOptions,
    stage: &mut ClusterStage,
    ledger: &ClaimLedger,
) -> anyhow::Result<RunOutcome> {
    let (planned, left_out) = plan_phases(stage.shards.is_known().await?);
    let db = stage.app.db.clone();
    let plan = CrowdPlan { name: "cluster", seed: SEED, speed: options.speed, drivers: options.driver_count() };
    let client = ChaosClient::new(&stage.bases(), ledger.clone())?;
    let (crowd, mut clients) = ChaosCrowd::send_in(&db, plan, client, ledger.clone()).await?;
    let book = LatenessBook::default();
    clients.spawn(book.clone().keep_looking(stage.control_store().clone()));
    let mut creating = JoinSet::new();
    creating.spawn(producers::create_orders(crowd.clone(), options.rate, None, UNTIL_STOPPED));

    let (mut phases, mut totals) = (Vec::with_capacity(planned.len()), RunTotals::default());
    let length = options.phase_length(planned.len());
    for phase in &planned {
        let _ = print::print_line(phase.name, options.json);
        let played = play_phase(stage, phase, length, ledger, &book, &mut totals).await;
        phases.push(played.with_context(|| format!("{:?} in the phase {}", phase.step, phase.name))?);
    }
    // Those who still wait for an answer hang up: they were told nothing.
    creating.shutdown().await;
    let mut violations = played::name_idle_phases(phases.iter().map(|phase| (phase.name, phase.orders)));
    violations.extend(stage.come_to_rest(options.speed).await?);
    crowd.stop.cancel();
    Ok(RunOutcome { phases, left_out, totals, violations })
}

async fn play_phase(
    stage: &mut ClusterStage,
    phase: &ClusterPhase,
    length: Duration,
    ledger: &ClaimLedger,
    book: &LatenessBook,
    totals: &mut RunTotals,
) -> anyhow::Result<ClusterPhaseReport> {
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
        Some(recovery::wait_for_timers(&app, step_end, end).await)
    };
    let (waited, timers) = tokio::join!(stage.wait_until(end), timers);
    waited?;
    let used = watch.finish(&stage.pids());
    let jobs = book.total().since(&jobs_before);
    let processor = totals.add_phase(&jobs, &used, &step);
    Ok(ClusterPhaseReport {
        name: phase.name,
        shards: phase.shards,
        at_rest: phase.step == ClusterStep::Rest,
        seconds: (begin.elapsed().as_secs_f64() * 10.0).round() / 10.0,
        orders: created() - orders_before,
        process_per_cpu_s: processor,
        lateness_ms: jobs.summarize(),
        step_s: step.took.map(|took| (took.as_secs_f64() * 100.0).round() / 100.0),
        timers_s: timers.as_ref().and_then(|timers| timers.as_ref().ok()).map(|s| (s * 10.0).round() / 10.0),
        without_timers: timers.and_then(Result::err),
        meanwhile_ms: step.meanwhile.map(|jobs| jobs.summarize()),
    })
}
