//! From the first order to rest, and what came of it.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{
    desk::{self, Desk},
    load,
    measure::Measures,
    options::Options,
    report::Report,
    watch::{CpuPerOrder, Memory},
};
use crate::{
    bench::machine::{Machine, Versions},
    testbed::{
        Settings, Testbed, partner, print,
        producer::Producer,
        progress::Progress,
        rest::Unrest,
        settings::{ServedBy, Webhook, real_policy},
        signals::interrupted,
    },
};
use dispatch::{
    history,
    partner::PartnerConfig,
    people::api_keys::{self, Role},
};
use partner_sim::{Options as PartnerOptions, PartnerSim};

/// How often is looked whether everything is at rest.
const LOOK: Duration = Duration::from_millis(250);
/// What may follow the lifetime, in the order's time: the longest way to the pickup and the longest trip, and questions
/// that find out about their ends.
const LONGEST_RIDE: Duration = Duration::from_secs((6 + 20 + 14) * 60);
/// What machines may need on top: a lease, a repair, backoff.
const SLACK: Duration = Duration::from_secs(60);

/// Measures, prints the report, and answers whether all is well: at rest, no invariant violated, no limit exceeded.
pub async fn run(options: Options) -> anyhow::Result<bool> {
    // Dropping it takes down all it has started.
    let report = tokio::select! {
        report = measure(&options) => report?,
        name = interrupted() => bail!("the measurement was interrupted by {name}"),
    };
    print::report(&report.text(), &report.json(), options.json)?;
    Ok(report.is_good())
}

async fn measure(options: &Options) -> anyhow::Result<Report> {
    let (machine, versions) = (Machine::look(), Versions::look().await?);
    let (sim, served) = partner_of(options).await?;
    let desk = Desk::open().await?;
    let settings = Settings {
        speed: options.speed,
        serves: 1,
        workers: options.workers.get(),
        for_faults: false,
        offers: None,
        alerts: Some(Webhook { name: desk::CHANNEL, url: desk.url() }),
        partner: Some(served),
    };
    let mut testbed = Testbed::start(&settings).await?;
    partner::call_back(&sim, testbed.api.base())?;
    let (_, key) = api_keys::create(&testbed.app.db, "bench", Role::Producer, None).await?;
    let producer = Producer::new(testbed.api.clone(), key);

    let played = play(options, &mut testbed, &sim, &producer).await;
    if played.is_err() {
        testbed.dir.keep();
    }
    let played = played.with_context(|| format!("the measurement failed; logs: {}", testbed.dir.path().display()))?;

    let cpu_per_order = CpuPerOrder::look(options.orders(), &testbed);
    let (processes, app, redis, postgres, mut dir) = testbed.into_parts();
    let mut violations = played.violations;
    violations.extend(processes.stop().await);
    let measures = Measures::take(&app.db, &app.store, options.speed).await?;
    let seen = sim.report().counters;
    violations.extend(disagreements(&measures, seen.bookings, desk.received()));
    violations.extend(history::check(&app).await?.iter().map(ToString::to_string));
    app.db.close().await;
    drop((redis, postgres));
    if !violations.is_empty() {
        dir.keep();
    }
    Ok(Report {
        options: options.clone(),
        machine,
        versions,
        wall_seconds: played.wall.as_secs_f64(),
        creating_seconds: played.creating.as_secs_f64(),
        created: producer.created(),
        calls_while_creating: played.calls_while_creating,
        measures,
        partner: seen,
        worker_rss_mb: played.memory,
        cpu_per_order,
        logs: (!violations.is_empty()).then(|| dir.path().to_owned()),
        violations,
    })
}

/// The partner, and how it is to be found. It enforces the limit that dispatchq is told to keep: what may come at once is the
/// burst that dispatchq allows itself, and what it may have on its way.
async fn partner_of(options: &Options) -> anyhow::Result<(PartnerSim, ServedBy)> {
    let limit = options.partner_limit();
    let mut knobs = options.scenario.knobs();
    knobs.rate_limit = Some(limit.into());
    knobs.rate_burst = Some((limit / 10 + PartnerConfig::at("").max_concurrent).into());
    let sim_options = PartnerOptions { seed: options.seed, speed: options.speed, knobs, ..PartnerOptions::default() };
    let sim = partner::start(&sim_options).await?;
    let mut served = partner::served_by(&sim, &sim_options);
    served.config.rate_per_s = limit;
    Ok((sim, served))
}

/// What is known when everything is at rest.
struct Played {
    /// From the first order to rest, and to the last order's creation.
    wall: Duration,
    creating: Duration,
    calls_while_creating: u64,
    memory: Memory,
    violations: Vec<String>,
}

async fn play(
    options: &Options,
    testbed: &mut Testbed,
    sim: &PartnerSim,
    producer: &Producer,
) -> anyhow::Result<Played> {
    let patience = (real_policy(partner::SERVICE_TYPE).lifetime + LONGEST_RIDE).div_f64(options.speed) + SLACK;
    let mut memory = Memory::default();
    memory.look(&testbed.processes);
    let mut violations = Vec::new();
    let start = Instant::now();
    let mut created: Option<(Instant, u64)> = None;
    let creating = producer.run(load::orders(options));
    let outage = outage(options, sim);
    tokio::pin!(creating, outage);
    let mut is_over = false;
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let progress = Progress::new(options.orders() as usize, options.json);
    let all_created = loop {
        tokio::select! {
            problems = &mut creating, if created.is_none() => {
                violations.extend(problems);
                created = Some((Instant::now(), sim.report().counters.requests));
            }
            over = &mut outage, if !is_over => {
                over?;
                is_over = true;
            }
            _ = looks.tick() => {
                violations.extend(testbed.processes.replace_ended()?);
                memory.look(&testbed.processes);
                let unrest = Unrest::look(&testbed.app.db, Some(sim)).await?;
                progress.show(producer.created(), unrest);
                let Some(created) = created else { continue };
                if is_over && unrest.is_rest() {
                    break created;
                }
                if created.0.elapsed() > patience {
                    violations.push(unrest.describe(&testbed.app.db, patience).await?);
                    break created;
                }
            }
        }
    };
    let (at, calls_while_creating) = all_created;
    Ok(Played { wall: start.elapsed(), creating: at - start, calls_while_creating, memory, violations })
}

/// Takes the partner down and lets it come back, if that is the scenario.
async fn outage(options: &Options, sim: &PartnerSim) -> anyhow::Result<()> {
    let Some((begin, length)) = options.scenario.outage(load::duration(options), options.speed) else { return Ok(()) };
    sleep(begin).await;
    sim.change(|knobs| knobs.down = true)?;
    sleep(length).await;
    sim.change(|knobs| knobs.down = false)
}

/// Where our books and those of others differ.
fn disagreements(measures: &Measures, bookings_at_partner: u64, alerts_arrived: u64) -> Vec<String> {
    let mut found = Vec::new();
    if bookings_at_partner != measures.bookings_known {
        let known = measures.bookings_known;
        found.push(format!("the partner made {bookings_at_partner} bookings, and {known} are known here"));
    }
    let delivered = measures.alerts.get(desk::CHANNEL).copied().unwrap_or_default();
    if alerts_arrived != delivered {
        found.push(format!("{delivered} alerts count as delivered, and {alerts_arrived} arrived"));
    }
    found
}
