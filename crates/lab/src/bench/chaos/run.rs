//! From the first order to the verdict.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    num::NonZeroU32,
    time::Duration,
};

use anyhow::{Context, bail};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    callers,
    claims::ClaimLedger,
    client::ChaosClient,
    crowd::ChaosCrowd,
    drivers,
    fault::ChaosFault,
    inflict::inflict_fault,
    options::ChaosOptions,
    producers::{self, BROADCAST},
    receivers::{ALERTS, MessageReceivers, OFFERS},
    recovery::{self, FaultRecovery, RecoveryLateness},
    report::{ChaosReport, FaultSummary},
    schedule::{self, PlannedFault},
    stage::ChaosStage,
    verify,
    watch::LatenessWatch,
};
use crate::{
    bench::machine::{MachineInfo, SoftwareVersions},
    testbed::{
        Testbed, TestbedSettings, figures, partner, print, rest::OpenWork, settings::real_policy,
        signals::wait_for_interrupt,
    },
};
use dispatch::{
    accounts::api_keys::{self, AccountRole},
    config::Config,
};
use partner_sim::{PartnerSim, PartnerSimOptions as PartnerOptions};

const SERVES: usize = 2;
const WORKERS: usize = 3;
/// Sessions of each process: thirty for two cores. With eighty, timers were late for longer after a fault that ended all of them.
const CONNECTIONS: u32 = 6;
/// The cleanup runs this often.
const CLEANUP_EVERY: Duration = Duration::from_secs(20);
/// The partner is asked for so long, which no speed divides.
const POLL_BUDGET: Duration = Duration::from_secs(3600);
/// What machines may need to come to rest on top of an order's lifetime: a lease, a repair, backoff of messages.
const SLACK: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(500);
/// The partner forgets no booking.
const PARTNER_KEEPS: Duration = Duration::from_secs(7 * 24 * 3600);

/// Runs, prints the report, and answers whether nothing is wrong.
pub async fn run(options: ChaosOptions) -> anyhow::Result<bool> {
    // Dropping it takes down all it has started.
    let report = tokio::select! {
        report = measure_chaos(&options) => report?,
        name = wait_for_interrupt() => bail!("the run was interrupted by {name}"),
    };
    print::print_report(&report.to_text(), &serde_json::to_string(&report)?, options.json)?;
    Ok(report.is_clean())
}

async fn measure_chaos(options: &ChaosOptions) -> anyhow::Result<ChaosReport> {
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let sim_options = PartnerOptions {
        seed: options.seed,
        speed: options.speed,
        keep_finished: PARTNER_KEEPS,
        ..PartnerOptions::default()
    };
    let sim = partner::start(&sim_options).await?;
    let receivers = MessageReceivers::start_listening().await?;
    let settings = TestbedSettings {
        speed: options.speed,
        serves: SERVES,
        workers: WORKERS,
        for_faults: true,
        offers: Some(receivers.webhook_target(OFFERS)),
        alerts: Some(receivers.webhook_target(ALERTS)),
        partner: Some(partner::served_by(&sim, &sim_options)),
        durable: false,
    };
    let configure = |config: &mut Config| {
        last_word(config);
        config.database.pooler = options.pooler;
    };
    let testbed = Testbed::start_with(&settings, configure).await?;
    partner::call_back(&sim, testbed.api.base_url())?;
    let mut stage = ChaosStage {
        testbed,
        receivers,
        watch: LatenessWatch::default(),
        problems: Vec::new(),
        false_starts: 0,
        clock_offset_secs: 0,
    };

    let ledger = ClaimLedger::default();
    let played = play_chaos(options, &mut stage, &sim, &ledger, sim_options.callback_secret.clone()).await;
    if played.is_err() {
        stage.testbed.dir.keep_files();
    }
    let played = played.with_context(|| format!("the run failed; logs: {}", stage.testbed.dir.path().display()))?;
    build_chaos_report(options, machine, versions, stage, &ledger, played).await
}

/// What else the configuration says: three drivers at once for one service type, a cleanup now and then.
fn last_word(config: &mut Config) {
    config.database.max_connections = CONNECTIONS;
    use dispatch::config::{ScheduledTask, TaskSchedule};
    config.service_types.entry(BROADCAST.into()).or_default().ask_at_once = Some(3);
    config.schedules.insert(ScheduledTask::Cleanup, TaskSchedule::Every(CLEANUP_EVERY));
    // Beside an order's time of 30 s, a fault lasts as long as 10 minutes do beside 30: the partner would not be asked about
    // the trip.
    for partner in config.partners.values_mut() {
        partner.poll.budget = POLL_BUDGET;
    }
}

/// What is known when everything is at rest.
struct ChaosOutcome {
    wall: Duration,
    faults: BTreeMap<ChaosFault, FaultSummary>,
    violations: Vec<String>,
}

async fn play_chaos(
    options: &ChaosOptions,
    stage: &mut ChaosStage,
    sim: &PartnerSim,
    ledger: &ClaimLedger,
    callback_secret: String,
) -> anyhow::Result<ChaosOutcome> {
    let db = stage.testbed.app.db.clone();
    let (_, key) = api_keys::create_permanent_key(&db, "chaos", AccountRole::Producer, None).await?;
    let fleet = drivers::insert_drivers(&db, options.seed, options.driver_count()).await?;
    let crowd = ChaosCrowd {
        seed: options.seed,
        speed: options.speed,
        client: ChaosClient::new(&stage.testbed.bases, ledger.clone())?,
        ledger: ledger.clone(),
        key,
        stop: CancellationToken::new(),
    };
    // Dropping them ends their work.
    let mut clients = JoinSet::new();
    for driver in fleet {
        clients.spawn(drivers::run_driver(crowd.clone(), driver));
    }
    let (caller, caller_db) = (crowd.clone(), db.clone());
    clients.spawn(async move {
        if let Err(error) = callers::repeat_job_ids(caller, caller_db, callback_secret).await {
            tracing::error!(%error, "The partner cannot call.");
        }
    });
    let watch = stage.watch.clone();
    clients.spawn(async move {
        let _ = watch.run().await;
    });
    let length = Duration::from_secs_f64(options.minutes * 60.0);
    let begin = Instant::now();
    let creating = tokio::spawn(producers::create_orders(crowd.clone(), options.rate, options.producers, length));

    let faults = make_faults(options, stage, begin).await?;
    stage.wait_until(begin + length).await?;
    creating.await.context("the producers failed")?;
    let violations = come_to_rest(options.speed, stage, sim).await?;
    let wall = begin.elapsed();
    crowd.stop.cancel();
    Ok(ChaosOutcome { wall, faults, violations })
}

/// Makes them all, each at its time.
async fn make_faults(
    options: &ChaosOptions,
    stage: &mut ChaosStage,
    begin: Instant,
) -> anyhow::Result<BTreeMap<ChaosFault, FaultSummary>> {
    let mut faults: BTreeMap<ChaosFault, FaultSummary> = BTreeMap::new();
    // Servers take their time to start, which moves all that follows.
    let mut late = Duration::ZERO;
    let mut recovery_of = Vec::new();
    for planned in schedule::plan_faults(options) {
        let at = begin + planned.at + late;
        stage.wait_until(at).await?;
        announce_fault(options, begin, &planned);
        inflict_fault(stage, &planned).await?;
        let end = Instant::now();
        late += (end - at).saturating_sub(planned.lasts);
        let next = end + planned.recovery;
        let app = stage.testbed.app.clone();
        let (waited, timers) = tokio::join!(stage.wait_until(next), recovery::wait_for_timers(&app, end, next));
        waited?;
        recovery_of.push((planned.fault, end, next, timers));
    }
    for (fault, end, next, timers) in recovery_of {
        let recovery = FaultRecovery::new(&RecoveryLateness::between_faults(&stage.watch, end, next), timers);
        match faults.entry(fault) {
            Entry::Occupied(mut of) => of.get_mut().add_recovery(recovery),
            Entry::Vacant(of) => {
                of.insert(FaultSummary::from_recovery(recovery));
            }
        }
    }
    Ok(faults)
}

/// A line for people, so that a long run shows what it is at.
fn announce_fault(options: &ChaosOptions, begin: Instant, planned: &PlannedFault) {
    let line = format!(
        "{:6.1} s  {} for {:.1} s",
        begin.elapsed().as_secs_f64(),
        planned.fault.cli_name(),
        planned.lasts.as_secs_f64()
    );
    let _ = print::print_line(&line, options.json);
}

/// Waits until every order is final, driven or held, and nothing waits to be delivered.
async fn come_to_rest(speed: f64, stage: &mut ChaosStage, sim: &PartnerSim) -> anyhow::Result<Vec<String>> {
    let patience = real_policy(producers::ONE_BY_ONE).lifetime.div_f64(speed) + SLACK;
    let end = Instant::now() + patience;
    loop {
        stage.wait_for(LOOK).await?;
        let unrest = OpenWork::read_open_work(&stage.testbed.app.db, Some(sim)).await?;
        if unrest.is_rest() {
            return Ok(Vec::new());
        }
        if Instant::now() > end {
            let mut lines = vec![unrest.describe_open_work(&stage.testbed.app.db, patience).await?];
            lines.extend(verify::open_orders(&stage.testbed.app.db).await?);
            return Ok(lines);
        }
    }
}

async fn build_chaos_report(
    options: &ChaosOptions,
    machine: MachineInfo,
    versions: SoftwareVersions,
    stage: ChaosStage,
    ledger: &ClaimLedger,
    played: ChaosOutcome,
) -> anyhow::Result<ChaosReport> {
    let ChaosStage { testbed, receivers, problems, false_starts, .. } = stage;
    let mut violations = played.violations;
    violations.extend(problems);
    // Long polls have ended, and what is left of them.
    sleep(Duration::from_secs(5)).await;
    violations.extend(verify::idle_in_transaction(&testbed.app.db).await?);
    let delivered = verify::count_delivered_messages(&testbed.app.db).await?;
    let lateness = figures::read_lateness(&testbed.app.store).await?;
    let repairs = figures::count_repairs(&testbed.app.db).await?;
    let Testbed { processes, app, ways, redis, postgres, mut dir, .. } = testbed;
    let kills = processes.kill_count();
    violations.extend(processes.stop().await);
    let claims = ledger.lock_claims().clone();
    violations.extend(verify::verify_claims(&app, &claims, &receivers).await?);
    // Of a run that is not judged by time: beside a lifetime of 30 s a busy machine is late by as much.
    let judges_time = options.leaves_time_to_recover() && versions.optimized;
    violations.extend(verify::verify_history(&app, judges_time).await?);
    if judges_time {
        for (fault, of) in &played.faults {
            violations
                .extend(of.recovery.missed_goals().into_iter().map(|missed| format!("{}: {missed}", fault.cli_name())));
        }
    }
    let outcomes = figures::count_outcomes(&app.db).await?;
    let bookings = figures::count_bookings(&app.db).await?;
    app.close().await;
    if !violations.is_empty() {
        dir.keep_files();
    }
    let logs = (!violations.is_empty()).then(|| dir.path().to_owned());
    drop((ways, redis, postgres));
    Ok(ChaosReport {
        seed: options.seed,
        minutes: options.minutes,
        rate: options.rate.get(),
        producers: options.producers.map(NonZeroU32::get),
        speed: options.speed,
        pooler: options.pooler,
        serves: SERVES,
        workers: WORKERS,
        wall_seconds: (played.wall.as_secs_f64() * 10.0).round() / 10.0,
        orders: outcomes.orders,
        requests: claims.requests,
        refusals: claims.refusals,
        hangups: claims.hang_ups,
        faults: played.faults.into_iter().map(|(fault, of)| (fault.cli_name(), of)).collect(),
        kills,
        false_starts,
        outcomes: outcomes.by_status,
        held: outcomes.held,
        bookings,
        messages: delivered,
        lateness_ms: lateness,
        repairs,
        machine,
        versions,
        violations,
        logs,
    })
}
