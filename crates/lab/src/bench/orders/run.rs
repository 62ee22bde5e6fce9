//! From the first order to rest, and what came of it.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{
    alerts, desk, load,
    measure::OrderMeasures,
    options::OrdersOptions,
    report::OrdersReport,
    scenario::OrdersScenario,
    stage::Stage,
    watch::{CpuPerOrder, WorkerMemory},
};
use crate::{
    bench::{
        collector::TraceCollector,
        lives,
        machine::{MachineInfo, SoftwareVersions},
    },
    testbed::{
        Testbed, partner, print, producer::OrderProducer, progress::OrderProgress, rest::OpenWork,
        settings::real_policy, signals::wait_for_interrupt,
    },
};
use dispatch::audit;
use partner_sim::PartnerSim;

/// How often is looked whether everything is at rest.
const LOOK: Duration = Duration::from_millis(250);
/// What may follow the lifetime, in the order's time: the longest way to the pickup and the longest trip, and questions
/// that find out about their ends.
const LONGEST_RIDE: Duration = Duration::from_secs((6 + 20 + 14) * 60);
/// What machines may need on top: a lease, a repair, backoff.
const SLACK: Duration = Duration::from_secs(60);

/// Measures, prints the report, and answers whether all is well: at rest, no invariant violated, no limit exceeded.
pub async fn run(options: OrdersOptions) -> anyhow::Result<bool> {
    match options.scenario {
        OrdersScenario::Fleet => return lives::run(options).await,
        OrdersScenario::Alerts => return alerts::run(options).await,
        _ => {}
    }
    // Dropping it takes down all it has started.
    let report = tokio::select! {
        report = measure_orders(&options) => report?,
        name = wait_for_interrupt() => bail!("the measurement was interrupted by {name}"),
    };
    print::print_report(&report.to_text(), &report.to_json(), options.json)?;
    Ok(report.is_good())
}

async fn measure_orders(options: &OrdersOptions) -> anyhow::Result<OrdersReport> {
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let Stage { sim, desk, collector, mut testbed, producer, prometheus } = Stage::start(options).await?;

    let played = play_orders(options, &mut testbed, &sim, &producer).await;
    if played.is_err() {
        testbed.dir.keep_files();
    }
    let played = played.with_context(|| format!("the measurement failed; logs: {}", testbed.dir.path().display()))?;

    let cpu_per_order = CpuPerOrder::read_cpu(options.order_count(), &testbed);
    let seen_by_prometheus = match &prometheus {
        Some(prometheus) => Some(prometheus.read_seen().await?),
        None => None,
    };
    drop(prometheus);
    let (processes, app, redis, postgres, mut dir) = testbed.into_parts();
    let mut violations = played.violations;
    violations.extend(processes.stop().await);
    let measures = OrderMeasures::read_measures(&app.db, &app.store, options.speed).await?;
    let seen = sim.read_report().counters;
    violations.extend(find_disagreements(&measures, seen.bookings, desk.received_count()));
    violations.extend(audit::check_history(&app).await?.iter().map(ToString::to_string));
    app.close().await;
    drop((redis, postgres));
    if !violations.is_empty() {
        dir.keep_files();
    }
    Ok(OrdersReport {
        options: options.clone(),
        machine,
        versions,
        wall_seconds: played.wall.as_secs_f64(),
        creating_seconds: played.creating.as_secs_f64(),
        created: producer.created_count(),
        calls_while_creating: played.calls_while_creating,
        measures,
        partner: seen,
        worker_rss_mb: played.memory,
        cpu_per_order,
        traces: collector.as_ref().map(TraceCollector::sent_traces),
        prometheus: seen_by_prometheus,
        logs: (!violations.is_empty()).then(|| dir.path().to_owned()),
        violations,
    })
}

/// What is known when everything is at rest.
struct OrdersOutcome {
    /// From the first order to rest, and to the last order's creation.
    wall: Duration,
    creating: Duration,
    calls_while_creating: u64,
    memory: WorkerMemory,
    violations: Vec<String>,
}

async fn play_orders(
    options: &OrdersOptions,
    testbed: &mut Testbed,
    sim: &PartnerSim,
    producer: &OrderProducer,
) -> anyhow::Result<OrdersOutcome> {
    let patience = (real_policy(partner::SERVICE_TYPE).lifetime + LONGEST_RIDE).div_f64(options.speed) + SLACK;
    let mut memory = WorkerMemory::default();
    memory.sample_largest(&testbed.processes);
    let mut violations = Vec::new();
    let start = Instant::now();
    let mut created: Option<(Instant, u64)> = None;
    let creating = producer.run(load::order_creations(options));
    let outage = inflict_outage(options, sim);
    tokio::pin!(creating, outage);
    let mut is_over = false;
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let progress = OrderProgress::new(options.order_count() as usize, options.json);
    let all_created = loop {
        tokio::select! {
            problems = &mut creating, if created.is_none() => {
                violations.extend(problems);
                created = Some((Instant::now(), sim.read_report().counters.requests));
            }
            over = &mut outage, if !is_over => {
                over?;
                is_over = true;
            }
            _ = looks.tick() => {
                violations.extend(testbed.processes.replace_ended()?);
                memory.sample_largest(&testbed.processes);
                let unrest = OpenWork::read_open_work(&testbed.app.db, Some(sim)).await?;
                progress.show_counts(producer.created_count(), unrest);
                let Some(created) = created else { continue };
                if is_over && unrest.is_rest() {
                    break created;
                }
                if created.0.elapsed() > patience {
                    violations.push(unrest.describe_open_work(&testbed.app.db, patience).await?);
                    break created;
                }
            }
        }
    };
    let (at, calls_while_creating) = all_created;
    Ok(OrdersOutcome { wall: start.elapsed(), creating: at - start, calls_while_creating, memory, violations })
}

/// Takes the partner down and lets it come back, if that is the scenario.
async fn inflict_outage(options: &OrdersOptions, sim: &PartnerSim) -> anyhow::Result<()> {
    let Some((begin, length)) = options.scenario.outage_window(options.creation_duration(), options.speed) else {
        return Ok(());
    };
    sleep(begin).await;
    sim.change_knobs(|knobs| knobs.down = true)?;
    sleep(length).await;
    sim.change_knobs(|knobs| knobs.down = false)
}

/// Where our books and those of others differ.
fn find_disagreements(measures: &OrderMeasures, bookings_at_partner: u64, alerts_arrived: u64) -> Vec<String> {
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
