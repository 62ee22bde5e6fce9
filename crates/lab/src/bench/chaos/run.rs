//! From the first order to the verdict.

use std::{
    collections::{BTreeMap, btree_map::Entry},
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
    claims::Ledger,
    client::Client,
    crowd::{Crowd, SPEED},
    drivers,
    fault::Fault,
    inflict::inflict,
    options::Options,
    producers::{self, BROADCAST},
    receivers::{ALERTS, OFFERS, Receivers},
    recovery::{self, Lateness, Recovery},
    report::{OfFault, Report},
    schedule::{self, Planned},
    stage::Stage,
    verify,
    watch::Watch,
};
use crate::{
    bench::machine::{Machine, Versions},
    testbed::{Settings, Testbed, figures, partner, print, rest::Unrest, settings::real_policy, signals::interrupted},
};
use dispatch::{
    config::Config,
    history,
    people::api_keys::{self, Role},
};
use partner_sim::{Options as PartnerOptions, PartnerSim};

const SERVES: usize = 2;
const WORKERS: usize = 3;
/// Drivers for each order created per second.
const DRIVERS_PER_RATE: u32 = 8;
/// The cleanup runs this often.
const CLEANUP_EVERY: Duration = Duration::from_secs(20);
/// The partner is asked for so long, which no speed divides.
const POLL_BUDGET: Duration = Duration::from_secs(3600);
/// What machines may need to come to rest on top of an order's lifetime: a lease, a repair, backoff of messages.
const SLACK: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(500);
/// The invariant of the history that is about the machine's time.
const ENDED_IN_TIME: &str = "ended_within_lifetime";
/// The partner forgets no booking.
const PARTNER_KEEPS: Duration = Duration::from_secs(7 * 24 * 3600);

/// Runs, prints the report, and answers whether nothing is wrong.
pub async fn run(options: Options) -> anyhow::Result<bool> {
    // Dropping it takes down all it has started.
    let report = tokio::select! {
        report = measure(&options) => report?,
        name = interrupted() => bail!("the run was interrupted by {name}"),
    };
    print::report(&report.text(), &serde_json::to_string(&report)?, options.json)?;
    Ok(report.is_clean())
}

async fn measure(options: &Options) -> anyhow::Result<Report> {
    let (machine, versions) = (Machine::look(), Versions::look().await?);
    let sim_options =
        PartnerOptions { seed: options.seed, speed: SPEED, keep_finished: PARTNER_KEEPS, ..PartnerOptions::default() };
    let sim = partner::start(&sim_options).await?;
    let receivers = Receivers::open().await?;
    let settings = Settings {
        speed: SPEED,
        serves: SERVES,
        workers: WORKERS,
        for_faults: true,
        offers: Some(receivers.webhook(OFFERS)),
        alerts: Some(receivers.webhook(ALERTS)),
        partner: Some(partner::served_by(&sim, &sim_options)),
    };
    let testbed = Testbed::start_with(&settings, last_word).await?;
    partner::call_back(&sim, testbed.api.base())?;
    let mut stage = Stage {
        testbed,
        receivers,
        watch: Watch::default(),
        problems: Vec::new(),
        false_starts: 0,
        clock_offset_secs: 0,
    };

    let ledger = Ledger::default();
    let played = play(options, &mut stage, &sim, &ledger, sim_options.callback_secret.clone()).await;
    if played.is_err() {
        stage.testbed.dir.keep();
    }
    let played = played.with_context(|| format!("the run failed; logs: {}", stage.testbed.dir.path().display()))?;
    finish(options, machine, versions, stage, &ledger, played).await
}

/// What else the configuration says: three drivers at once for one service type, a cleanup now and then.
fn last_word(config: &mut Config) {
    use dispatch::periodic::schedule::{Schedule, Task};
    config.service_types.entry(BROADCAST.to_owned()).or_default().ask_at_once = Some(3);
    config.schedules.insert(Task::Cleanup, Schedule::Every(CLEANUP_EVERY));
    // Beside an order's time of 30 s, a fault lasts as long as 10 minutes do beside 30: the partner would not be asked about
    // the trip.
    for partner in config.partners.values_mut() {
        partner.poll.budget = POLL_BUDGET;
    }
}

/// What is known when everything is at rest.
struct Played {
    wall: Duration,
    faults: BTreeMap<Fault, OfFault>,
    violations: Vec<String>,
}

async fn play(
    options: &Options,
    stage: &mut Stage,
    sim: &PartnerSim,
    ledger: &Ledger,
    callback_secret: String,
) -> anyhow::Result<Played> {
    let db = stage.testbed.app.db.clone();
    let (_, key) = api_keys::create(&db, "chaos", Role::Producer, None).await?;
    let fleet = drivers::hire(&db, options.seed, (options.rate.get() * DRIVERS_PER_RATE) as usize).await?;
    let crowd = Crowd {
        seed: options.seed,
        client: Client::new(&stage.testbed.bases, ledger.clone())?,
        ledger: ledger.clone(),
        key,
        stop: CancellationToken::new(),
    };
    // Dropping them ends their work.
    let mut clients = JoinSet::new();
    for driver in fleet {
        clients.spawn(drivers::work(crowd.clone(), driver));
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
    let creating = tokio::spawn(producers::create_orders(crowd.clone(), options.rate, length));

    let faults = make_faults(options, stage, begin).await?;
    stage.wait_until(begin + length).await?;
    creating.await.context("the producers failed")?;
    let violations = come_to_rest(stage, sim).await?;
    let wall = begin.elapsed();
    crowd.stop.cancel();
    Ok(Played { wall, faults, violations })
}

/// Makes them all, each at its time.
async fn make_faults(options: &Options, stage: &mut Stage, begin: Instant) -> anyhow::Result<BTreeMap<Fault, OfFault>> {
    let mut faults: BTreeMap<Fault, OfFault> = BTreeMap::new();
    // Servers take their time to start, which moves all that follows.
    let mut late = Duration::ZERO;
    let mut recovery_of = Vec::new();
    for planned in schedule::plan(options) {
        let at = begin + planned.at + late;
        stage.wait_until(at).await?;
        say(options, begin, &planned);
        inflict(stage, &planned).await?;
        let end = Instant::now();
        late += (end - at).saturating_sub(planned.lasts);
        let next = end + planned.recovery;
        let app = stage.testbed.app.clone();
        let (waited, timers) = tokio::join!(stage.wait_until(next), recovery::wait_for_timers(&app, end, next));
        waited?;
        recovery_of.push((planned.fault, end, next, timers));
    }
    for (fault, end, next, timers) in recovery_of {
        let recovery = Recovery::new(&Lateness::of(&stage.watch, end, next), timers);
        match faults.entry(fault) {
            Entry::Occupied(mut of) => of.get_mut().add(recovery),
            Entry::Vacant(of) => {
                of.insert(OfFault::first(recovery));
            }
        }
    }
    Ok(faults)
}

/// A line for people, so that a long run shows what it is at.
fn say(options: &Options, begin: Instant, planned: &Planned) {
    let line = format!(
        "{:6.1} s  {} for {:.1} s",
        begin.elapsed().as_secs_f64(),
        planned.fault.name(),
        planned.lasts.as_secs_f64()
    );
    let _ = print::line(&line, options.json);
}

/// Waits until every order is final, driven or held, and nothing waits to be delivered.
async fn come_to_rest(stage: &mut Stage, sim: &PartnerSim) -> anyhow::Result<Vec<String>> {
    let patience = real_policy(producers::ONE_BY_ONE).lifetime.div_f64(SPEED) + SLACK;
    let end = Instant::now() + patience;
    loop {
        stage.wait(LOOK).await?;
        let unrest = Unrest::look(&stage.testbed.app.db, Some(sim)).await?;
        if unrest.is_rest() {
            return Ok(Vec::new());
        }
        if Instant::now() > end {
            let mut lines = vec![unrest.describe(&stage.testbed.app.db, patience).await?];
            lines.extend(verify::open_orders(&stage.testbed.app.db).await?);
            return Ok(lines);
        }
    }
}

async fn finish(
    options: &Options,
    machine: Machine,
    versions: Versions,
    stage: Stage,
    ledger: &Ledger,
    played: Played,
) -> anyhow::Result<Report> {
    let Stage { testbed, receivers, problems, false_starts, .. } = stage;
    let mut violations = played.violations;
    violations.extend(problems);
    // Long polls have ended, and what is left of them.
    sleep(Duration::from_secs(5)).await;
    violations.extend(verify::idle_in_transaction(&testbed.app.db).await?);
    let delivered = verify::delivered(&testbed.app.db).await?;
    let lateness = figures::lateness(&testbed.app.store).await?;
    let repairs = figures::repairs(&testbed.app.db).await?;
    let Testbed { processes, app, ways, redis, postgres, mut dir, .. } = testbed;
    let kills = processes.kills();
    violations.extend(processes.stop().await);
    let claims = ledger.lock().clone();
    violations.extend(verify::verify(&app, &claims, &receivers).await?);
    // Of a run that is not judged by time: beside a lifetime of 30 s a busy machine is late by as much.
    let judges_time = options.leaves_time_to_recover() && versions.optimized;
    let history = history::check(&app).await?;
    let found = history.iter().filter(|violation| judges_time || violation.invariant != ENDED_IN_TIME);
    violations.extend(found.map(ToString::to_string));
    if judges_time {
        for (fault, of) in &played.faults {
            violations.extend(of.recovery.misses().into_iter().map(|missed| format!("{}: {missed}", fault.name())));
        }
    }
    let outcomes = figures::outcomes(&app.db).await?;
    let bookings = figures::bookings(&app.db).await?;
    app.db.close().await;
    if !violations.is_empty() {
        dir.keep();
    }
    let logs = (!violations.is_empty()).then(|| dir.path().to_owned());
    drop((ways, redis, postgres));
    Ok(Report {
        seed: options.seed,
        minutes: options.minutes,
        rate: options.rate.get(),
        speed: SPEED,
        serves: SERVES,
        workers: WORKERS,
        wall_seconds: (played.wall.as_secs_f64() * 10.0).round() / 10.0,
        orders: outcomes.orders,
        requests: claims.requests,
        refusals: claims.refusals,
        hangups: claims.hang_ups,
        faults: played.faults.into_iter().map(|(fault, of)| (fault.name(), of)).collect(),
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
