//! From the first order to the verdict.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    num::NonZeroU32,
    time::Duration,
};

use anyhow::{Context, bail};
use tokio::time::Instant;

use super::{
    callers,
    claims::ClaimLedger,
    client::ChaosClient,
    crowd::{ChaosCrowd, CrowdPlan},
    fault::ChaosFault,
    inflict::inflict_fault,
    options::ChaosOptions,
    producers,
    recovery::{self, FaultRecovery, RecoveryLateness},
    report::{ChaosReport, FaultSummary},
    schedule::{self, PlannedFault},
    stage::ChaosStage,
    verify,
    watch::LatenessWatch,
};
use crate::{
    bench::{
        machine::{MachineInfo, SoftwareVersions},
        played::{self, CalledParties, PlayedStage},
    },
    testbed::{Testbed, figures, partner, print, signals::wait_for_interrupt},
};
use dispatch::config::Config;

const SERVES: usize = 2;
const WORKERS: usize = 3;

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
    let parties = CalledParties::start_listening(options.seed, options.speed).await?;
    let settings = parties.settings(SERVES, WORKERS);
    let CalledParties { sim, sim_options, receivers } = parties;
    let configure = |config: &mut Config| {
        played::ask_several(config);
        played::clean_up_often(config);
        played::ask_partners_for_long(config);
        config.database.pooler = options.pooler;
    };
    let testbed = Testbed::start_with(&settings, configure).await?;
    partner::call_back(&sim, testbed.api.base_url())?;
    let mut stage = ChaosStage {
        testbed,
        sim,
        receivers,
        watch: LatenessWatch::default(),
        problems: Vec::new(),
        false_starts: 0,
        clock_offset_secs: 0,
    };

    let ledger = ClaimLedger::default();
    let played = play_chaos(options, &mut stage, &ledger, sim_options.callback_secret).await;
    if played.is_err() {
        stage.testbed.dir.keep_files();
    }
    let played = played.with_context(|| format!("the run failed; logs: {}", stage.testbed.dir.path().display()))?;
    build_chaos_report(options, machine, versions, stage, &ledger, played).await
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
    ledger: &ClaimLedger,
    callback_secret: String,
) -> anyhow::Result<ChaosOutcome> {
    let db = stage.testbed.app.db.clone();
    let plan = CrowdPlan { name: "chaos", seed: options.seed, speed: options.speed, drivers: options.driver_count() };
    let client = ChaosClient::new(&stage.testbed.bases, ledger.clone())?;
    let (crowd, mut clients) = ChaosCrowd::send_in(&db, plan, client, ledger.clone()).await?;
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
    let violations = stage.come_to_rest(options.speed).await?;
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
    violations.extend(played::let_long_polls_end(&testbed.app.db).await?);
    let delivered = verify::count_delivered_messages(&testbed.app.db).await?;
    let lateness = figures::read_lateness(&testbed.app.store).await?;
    let repairs = figures::count_repairs(&testbed.app.db).await?;
    let Testbed { processes, app, ways, redis, postgres, mut dir, .. } = testbed;
    let kills = processes.kill_count();
    // Of a run that is not judged by time: beside a lifetime of 30 s a busy machine is late by as much.
    let judges_time = options.leaves_time_to_recover() && versions.optimized;
    let claims = played::stop_and_verify(processes, &app, ledger, &receivers, judges_time, &mut violations).await?;
    if judges_time {
        for (fault, of) in &played.faults {
            violations
                .extend(of.recovery.missed_goals().into_iter().map(|missed| format!("{}: {missed}", fault.cli_name())));
        }
    }
    let outcomes = figures::count_outcomes(&app.db).await?;
    let bookings = figures::count_bookings(&app.db).await?;
    app.close().await;
    let logs = played::keep_logs(&mut dir, &violations);
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
