//! From the first order to the verdict.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    lateness::LatenessBook,
    options::ClusterOptions,
    phases::{ClusterPhase, ClusterStep, plan_phases},
    plain,
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
            crowd::ChaosCrowd,
            drivers,
            producers::{self, BROADCAST, ONE_BY_ONE},
            receivers::{ALERTS, MessageReceivers, OFFERS},
            recovery, verify,
        },
        machine::{MachineInfo, SoftwareVersions},
        processor::ProcessorWatch,
    },
    testbed::{
        TestbedSettings, figures, partner, print, rest::OpenWork, settings::real_policy, signals::wait_for_interrupt,
    },
};
use dispatch::{
    accounts::api_keys::{self, AccountRole},
    config::Config,
};
use partner_sim::PartnerSimOptions;

const SERVES: usize = 2;
const WORKERS: usize = 2;
/// Decides what clients want.
const SEED: u64 = 1;
/// Sessions of each process.
const CONNECTIONS: u32 = 6;
/// The partner forgets no booking, and is asked for so long, which no speed divides.
const PARTNER_KEEPS: Duration = Duration::from_secs(7 * 24 * 3600);
const POLL_BUDGET: Duration = Duration::from_secs(3600);
/// Longer than any run: producers create orders until they are told to stop.
const UNTIL_STOPPED: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time that follows a step at least: two looks at the timers.
const AFTER_STEP: Duration = Duration::from_secs(3);
/// What machines may need to come to rest on top of an order's lifetime: a lease, a repair, backoff of messages.
const SLACK: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(500);
/// Long polls end within this time, and what is left of them.
const LONG_POLLS: Duration = Duration::from_secs(5);

/// Runs, prints the report, and answers whether nothing is wrong.
pub async fn run(options: ClusterOptions) -> anyhow::Result<bool> {
    // Dropping it takes down all it has started.
    let measured = async {
        if options.plain {
            return plain::measure_plain(&options).await;
        }
        let report = measure_cluster(&options).await?;
        Ok((report.to_text(), serde_json::to_value(&report)?, report.violations.is_empty()))
    };
    let (text, json, is_good) = tokio::select! {
        measured = measured => measured?,
        name = wait_for_interrupt() => bail!("the run was interrupted by {name}"),
    };
    print::print_report(&text, &json, options.json)?;
    Ok(is_good)
}

async fn measure_cluster(options: &ClusterOptions) -> anyhow::Result<ClusterReport> {
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let sim_options = PartnerSimOptions {
        seed: SEED,
        speed: options.speed,
        keep_finished: PARTNER_KEEPS,
        ..PartnerSimOptions::default()
    };
    let sim = partner::start(&sim_options).await?;
    let receivers = MessageReceivers::start_listening().await?;
    let settings = TestbedSettings {
        speed: options.speed,
        serves: SERVES,
        workers: WORKERS,
        // Workers show whether they are ready.
        for_faults: true,
        offers: Some(receivers.webhook_target(OFFERS)),
        alerts: Some(receivers.webhook_target(ALERTS)),
        partner: Some(partner::served_by(&sim, &sim_options)),
        durable: false,
    };
    let ledger = ClaimLedger::default();
    let mut stage = ClusterStage::set_up(sim, &settings, configure).await?;
    let played = play_cluster(options, &mut stage, &ledger).await;
    if played.is_err() {
        stage.dir.keep_files();
    }
    let RunOutcome { phases, left_out, totals, mut violations } =
        played.with_context(|| format!("the run failed; logs: {}", stage.dir.path().display()))?;

    sleep(LONG_POLLS).await;
    violations.extend(verify::idle_in_transaction(&stage.app.db).await?);
    let ClusterStage { processes, app, cluster, postgres, mut dir, problems, .. } = stage;
    violations.extend(problems);
    violations.extend(processes.stop().await);
    let claims = ledger.lock_claims().clone();
    violations.extend(verify::verify_claims(&app, &claims, &receivers).await?);
    violations.extend(verify::verify_history(&app, versions.optimized).await?);
    let told: Vec<String> = claims.created.iter().map(|(_, order)| order.clone()).collect();
    let verdict = judge_run(&app.db, &told).await?;
    violations.extend(verdict.found.iter().cloned());
    let outcomes = figures::count_outcomes(&app.db).await?;
    let repairs = figures::count_repairs(&app.db).await?;
    app.close().await;
    if !violations.is_empty() {
        dir.keep_files();
    }
    let logs = (!violations.is_empty()).then(|| dir.path().to_owned());
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

/// What else the configuration says: three drivers at once for one service type.
fn configure(config: &mut Config) {
    config.database.max_connections = CONNECTIONS;
    config.service_types.entry(BROADCAST.into()).or_default().ask_at_once = Some(3);
    for partner in config.partners.values_mut() {
        partner.poll.budget = POLL_BUDGET;
    }
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
    let (_, key) = api_keys::create_permanent_key(&db, "cluster", AccountRole::Producer, None).await?;
    let fleet = drivers::insert_drivers(&db, SEED, options.driver_count()).await?;
    let crowd = ChaosCrowd {
        seed: SEED,
        speed: options.speed,
        client: ChaosClient::new(&stage.bases(), ledger.clone())?,
        ledger: ledger.clone(),
        key,
        stop: CancellationToken::new(),
    };
    // Dropping them ends their work.
    let mut clients = JoinSet::new();
    for driver in fleet {
        clients.spawn(drivers::run_driver(crowd.clone(), driver));
    }
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
    let mut violations: Vec<String> = phases
        .iter()
        .filter(|phase| phase.orders == 0)
        .map(|phase| format!("no order was created in the phase {}", phase.name))
        .collect();
    violations.extend(come_to_rest(options.speed, stage).await?);
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

/// Waits until every order is final, driven or held, and nothing waits to be delivered.
async fn come_to_rest(speed: f64, stage: &mut ClusterStage) -> anyhow::Result<Vec<String>> {
    let patience = real_policy(ONE_BY_ONE).lifetime.div_f64(speed) + SLACK;
    let end = Instant::now() + patience;
    loop {
        stage.wait_until(Instant::now() + LOOK).await?;
        let unrest = OpenWork::read_open_work(&stage.app.db, Some(&stage.sim)).await?;
        if unrest.is_rest() {
            return Ok(Vec::new());
        }
        if Instant::now() > end {
            let mut lines = vec![unrest.describe_open_work(&stage.app.db, patience).await?];
            lines.extend(verify::open_orders(&stage.app.db).await?);
            return Ok(lines);
        }
    }
}
