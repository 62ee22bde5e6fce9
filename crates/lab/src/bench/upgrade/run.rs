//! From the first order to the verdict.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

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
            crowd::ChaosCrowd,
            drivers,
            producers::{self, BROADCAST, ONE_BY_ONE},
            receivers::{ALERTS, MessageReceivers, OFFERS},
            verify,
        },
        machine::{MachineInfo, SoftwareVersions},
    },
    testbed::{
        TestbedSettings, figures, partner, print, rest::OpenWork, settings::real_policy, signals::wait_for_interrupt,
    },
};
use dispatch::{
    accounts::api_keys::{self, AccountRole},
    config::{Config, ScheduledTask, TaskSchedule},
};
use partner_sim::PartnerSimOptions;

/// Divides the durations of orders, of trips and of the partner: an order's half hour is a minute, an offer stands for 4 s.
const SPEED: f64 = 30.0;
/// Decides what clients want.
const SEED: u64 = 1;
/// Drivers for each order created per second. At this speed some ten of them are busy.
const DRIVERS_PER_RATE: u32 = 32;
/// Sessions of each process, of which there are eight side by side.
const CONNECTIONS: u32 = 6;
/// Both versions clean up.
const CLEANUP_EVERY: Duration = Duration::from_secs(20);
/// The partner forgets no booking.
const PARTNER_KEEPS: Duration = Duration::from_secs(7 * 24 * 3600);
/// Longer than any run: producers create orders until they are told to stop.
const UNTIL_STOPPED: Duration = Duration::from_secs(7 * 24 * 3600);
/// What machines may need to come to rest on top of an order's lifetime: a lease, a repair, backoff of messages.
const SLACK: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(500);
/// Long polls end within this time, and what is left of them.
const LONG_POLLS: Duration = Duration::from_secs(5);

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
    let sim_options =
        PartnerSimOptions { seed: SEED, speed: SPEED, keep_finished: PARTNER_KEEPS, ..PartnerSimOptions::default() };
    let sim = partner::start(&sim_options).await?;
    let receivers = MessageReceivers::start_listening().await?;
    let settings = TestbedSettings {
        speed: SPEED,
        serves: 2 * SERVES,
        workers: 2 * WORKERS,
        for_faults: true,
        offers: Some(receivers.webhook_target(OFFERS)),
        alerts: Some(receivers.webhook_target(ALERTS)),
        partner: Some(partner::served_by(&sim, &sim_options)),
        durable: false,
    };
    let ledger = ClaimLedger::default();
    let client = ChaosClient::new(&[], ledger.clone())?;
    let mut stage = UpgradeStage::set_up(&options.old, sim, client, &settings, configure).await?;
    let played = play_upgrade(options, &mut stage, &ledger).await;
    if played.is_err() {
        stage.dir.keep_files();
    }
    let (phases, mut violations) =
        played.with_context(|| format!("the run failed; logs: {}", stage.dir.path().display()))?;

    sleep(LONG_POLLS).await;
    violations.extend(verify::idle_in_transaction(&stage.app.db).await?);
    let UpgradeStage { processes, app, redis, postgres, mut dir, problems, .. } = stage;
    violations.extend(problems);
    violations.extend(processes.stop().await);
    let claims = ledger.lock_claims().clone();
    violations.extend(claims.failures.iter().map(|(answer, count)| format!("answered {answer}: {count} times")));
    violations.extend(verify::verify_claims(&app, &claims, &receivers).await?);
    violations.extend(verify::verify_history(&app, versions.optimized).await?);
    let outcomes = figures::count_outcomes(&app.db).await?;
    let messages = verify::count_delivered_messages(&app.db).await?;
    let repairs = figures::count_repairs(&app.db).await?;
    app.close().await;
    if !violations.is_empty() {
        dir.keep_files();
    }
    let logs = (!violations.is_empty()).then(|| dir.path().to_owned());
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

/// What else the configuration says: three drivers at once for one service type, a cleanup now and then.
fn configure(config: &mut Config) {
    config.database.max_connections = CONNECTIONS;
    config.service_types.entry(BROADCAST.into()).or_default().ask_at_once = Some(3);
    config.schedules.insert(ScheduledTask::Cleanup, TaskSchedule::Every(CLEANUP_EVERY));
}

/// Orders are created through all phases. Returns what each of them saw, and what is wrong.
async fn play_upgrade(
    options: &UpgradeOptions,
    stage: &mut UpgradeStage,
    ledger: &ClaimLedger,
) -> anyhow::Result<(Vec<PhaseReport>, Vec<String>)> {
    let db = stage.app.db.clone();
    let (_, key) = api_keys::create_permanent_key(&db, "upgrade", AccountRole::Producer, None).await?;
    let drivers_wanted = options.rate.get().saturating_mul(DRIVERS_PER_RATE) as usize;
    let fleet = drivers::insert_drivers(&db, SEED, drivers_wanted).await?;
    let crowd = ChaosCrowd {
        seed: SEED,
        speed: SPEED,
        client: stage.client.clone(),
        ledger: ledger.clone(),
        key,
        stop: CancellationToken::new(),
    };
    // Dropping them ends their work.
    let mut clients = JoinSet::new();
    for driver in fleet {
        clients.spawn(drivers::run_driver(crowd.clone(), driver));
    }
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
    let mut violations: Vec<String> = phases
        .iter()
        .filter(|phase| phase.orders == 0)
        .map(|phase| format!("no order was created in the phase {}", phase.name))
        .collect();
    violations.extend(come_to_rest(stage).await?);
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

/// Waits until every order is final, driven or held, and nothing waits to be delivered.
async fn come_to_rest(stage: &mut UpgradeStage) -> anyhow::Result<Vec<String>> {
    let patience = real_policy(ONE_BY_ONE).lifetime.div_f64(SPEED) + SLACK;
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
