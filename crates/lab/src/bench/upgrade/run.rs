//! From the first order to the verdict.

use anyhow::{Context, bail};
use tokio::{task::JoinSet, time::Instant};

use super::{
    options::UpgradeOptions,
    phases::{PHASES, UpgradePhase},
    report::{PhaseReport, UpgradeReport},
    stage::{SERVES, UpgradeStage, WORKERS},
};
use crate::{
    bench::{
        chaos::{
            claims::ClaimLedger,
            client::ChaosClient,
            crowd::{ChaosCrowd, CrowdPlan},
            producers, verify,
        },
        machine::{MachineInfo, SoftwareVersions},
        played::{self, CalledParties, PlayedStage, UNTIL_STOPPED},
    },
    testbed::{figures, print, signals::wait_for_interrupt},
};
use dispatch::config::Config;

/// Divides the durations of orders, of trips and of the partner: an order's half hour is a minute, an offer stands for 4 s.
const SPEED: f64 = 30.0;
/// Decides what clients want.
const SEED: u64 = 1;
/// Drivers for each order created per second. At this speed some ten of them are busy.
const DRIVERS_PER_RATE: u32 = 32;

/// Runs, prints the report, and answers whether nothing is wrong.
pub async fn run(options: UpgradeOptions) -> anyhow::Result<bool> {
    // Dropping it takes down all it has started.
    let report = tokio::select! {
        report = measure_upgrade(&options) => report?,
        name = wait_for_interrupt() => bail!("the run was interrupted by {name}"),
    };
    print::print_report(&report.to_text(), &serde_json::to_string(&report)?, options.json)?;
    Ok(report.violations.is_empty())
}

async fn measure_upgrade(options: &UpgradeOptions) -> anyhow::Result<UpgradeReport> {
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let parties = CalledParties::start_listening(SEED, SPEED).await?;
    let settings = parties.settings(2 * SERVES, 2 * WORKERS);
    let CalledParties { sim, receivers, .. } = parties;
    let ledger = ClaimLedger::default();
    let client = ChaosClient::new(&[], ledger.clone())?;
    let mut stage = UpgradeStage::set_up(&options.old, sim, client, &settings, configure).await?;
    let played = play_upgrade(options, &mut stage, &ledger).await;
    if played.is_err() {
        stage.dir.keep_files();
    }
    let (phases, mut violations) =
        played.with_context(|| format!("the run failed; logs: {}", stage.dir.path().display()))?;

    violations.extend(played::let_long_polls_end(&stage.app.db).await?);
    let UpgradeStage { processes, app, redis, postgres, mut dir, problems, .. } = stage;
    violations.extend(problems);
    let claims =
        played::stop_and_verify(processes, &app, &ledger, &receivers, versions.optimized, &mut violations).await?;
    violations.extend(claims.failures.iter().map(|(answer, count)| format!("answered {answer}: {count} times")));
    let outcomes = figures::count_outcomes(&app.db).await?;
    let messages = verify::count_delivered_messages(&app.db).await?;
    let repairs = figures::count_repairs(&app.db).await?;
    app.close().await;
    let logs = played::keep_logs(&mut dir, &violations);
    drop((redis, postgres));
    Ok(UpgradeReport {
        old: options.old.clone(),
        rate: options.rate.get(),
        seconds: options.seconds.get(),
        phases,
        orders: outcomes.orders,
        outcomes: outcomes.by_status,
        requests: claims.requests,
        messages,
        repairs,
        machine,
        versions,
        violations,
        logs,
    })
}

fn configure(config: &mut Config) {
    played::ask_several(config);
    played::clean_up_often(config);
}

/// Orders are created through all phases. Returns what each of them saw, and what is wrong.
async fn play_upgrade(
    options: &UpgradeOptions,
    stage: &mut UpgradeStage,
    ledger: &ClaimLedger,
) -> anyhow::Result<(Vec<PhaseReport>, Vec<String>)> {
    let db = stage.app.db.clone();
    let drivers = options.rate.get().saturating_mul(DRIVERS_PER_RATE) as usize;
    let plan = CrowdPlan { name: "upgrade", seed: SEED, speed: SPEED, drivers };
    let (crowd, mut clients) = ChaosCrowd::send_in(&db, plan, stage.client.clone(), ledger.clone()).await?;
    let watch = stage.watch.clone();
    clients.spawn(async move {
        let _ = watch.run().await;
    });
    let mut creating = JoinSet::new();
    creating.spawn(producers::create_orders(crowd.clone(), options.rate, None, UNTIL_STOPPED));

    let mut phases = Vec::with_capacity(PHASES.len());
    for phase in &PHASES {
        phases.push(play_phase(options, stage, ledger, phase).await?);
    }
    // Those who still wait for an answer hang up: they were told nothing.
    creating.shutdown().await;
    let mut violations = played::name_idle_phases(phases.iter().map(|phase| (phase.name, phase.orders)));
    violations.extend(stage.come_to_rest(SPEED).await?);
    crowd.stop.cancel();
    Ok((phases, violations))
}

async fn play_phase(
    options: &UpgradeOptions,
    stage: &mut UpgradeStage,
    ledger: &ClaimLedger,
    phase: &UpgradePhase,
) -> anyhow::Result<PhaseReport> {
    let _ = print::print_line(phase.name, options.json);
    let created = || ledger.lock_claims().created.len();
    let (begin, before) = (Instant::now(), created());
    for step in phase.steps {
        stage.perform_step(*step).await.with_context(|| format!("{step:?} in the phase {}", phase.name))?;
    }
    stage.wait_until(begin + options.phase_length()).await?;
    let end = Instant::now();
    Ok(PhaseReport {
        name: phase.name,
        seconds: ((end - begin).as_secs_f64() * 10.0).round() / 10.0,
        orders: created() - before,
        p99_ms: stage.watch.p99_ms(begin, end).map(|ms| (ms * 10.0).round() / 10.0),
    })
}
