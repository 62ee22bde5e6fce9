//! From the first order to rest, and what came of it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use tokio::time::{MissedTickBehavior, interval};

use super::{
    measure::LifeMeasures,
    peer,
    report::LivesReport,
    script::{ATTEMPT, LifeScript},
    town,
};
use crate::{
    bench::{
        collector::TraceCollector,
        machine::{MachineInfo, SoftwareVersions},
        orders::OrdersOptions,
        processor::{PidsByKind, ProcessorUse, ProcessorWatch},
    },
    testbed::{
        Testbed, TestbedSettings,
        drivers::{self, OfferReceiver},
        print,
        producer::OrderProducer,
        progress::OrderProgress,
        rest::OpenWork,
        settings::WebhookTarget,
        signals::wait_for_interrupt,
    },
};
use dispatch::{
    accounts::{api_keys::AccountRole, key_admin},
    audit,
    config::Config,
};

/// The channel that reaches the drivers.
const CHANNEL: &str = "drivers";
/// The pause between two searches that found no driver.
const RETRY: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(500);
/// What the orders that are still open may take once the last is created.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures, prints the report, and answers whether all is well: at rest, and no invariant violated.
pub(in crate::bench) async fn run(options: OrdersOptions) -> anyhow::Result<bool> {
    // Dropping it takes down all it has started.
    let report = tokio::select! {
        report = measure_lives(&options) => report?,
        name = wait_for_interrupt() => bail!("the measurement was interrupted by {name}"),
    };
    print::print_report(&report.to_text(), &report.to_json(), options.json)?;
    Ok(report.violations.is_empty())
}

async fn measure_lives(options: &OrdersOptions) -> anyhow::Result<LivesReport> {
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let receiver = OfferReceiver::bind_port().await?;
    let settings = TestbedSettings {
        speed: 1.0,
        serves: 1,
        workers: options.workers.get(),
        for_faults: false,
        offers: Some(WebhookTarget { name: CHANNEL, url: receiver.url() }),
        alerts: None,
        partner: None,
        durable: true,
    };
    let collector = TraceCollector::start(options.trace_sampling).await?;
    let configure = |config: &mut Config| {
        if let Some(collector) = &collector {
            collector.configure(config);
        }
        config.dispatch.attempt = ATTEMPT;
        config.dispatch.retry = vec![RETRY];
        config.dispatch.radius_m = town::RADIUS_M;
    };
    let mut testbed = Testbed::start_with(&settings, configure).await?;
    let fleet = town::place_drivers(options.rate.get());
    drivers::insert_drivers(&testbed.app, &fleet, town::SERVICE_TYPE).await?;
    let drivers = receiver.start(testbed.api.clone(), Box::new(LifeScript), &fleet);
    let (_, key) = key_admin::create_permanent_key(&testbed.app.db, "bench", AccountRole::Producer, None).await?;
    let producer = OrderProducer::new(testbed.api.clone(), key);

    let watch = ProcessorWatch::start(&pids_of(&testbed));
    let played = play_lives(options, &mut testbed, &producer, watch).await;
    if played.is_err() {
        testbed.dir.keep_files();
    }
    let played = played.with_context(|| format!("the measurement failed; logs: {}", testbed.dir.path().display()))?;

    let answer_times = testbed.api.answer_times();
    let (processes, app, redis, postgres, mut dir) = testbed.into_parts();
    let mut violations = played.violations;
    violations.extend(processes.stop().await);
    let measures = LifeMeasures::read_measures(&app.db, &app.store).await?;
    violations.extend(audit::check_history(&app).await?.iter().map(ToString::to_string));
    app.close().await;
    drop((redis, postgres));
    if !violations.is_empty() {
        dir.keep_files();
    }
    let peer = match &options.peer {
        Some(dir) => Some(peer::measure_peer(dir, options.rate.get()).await?),
        None => None,
    };
    Ok(LivesReport {
        options: options.clone(),
        machine,
        versions,
        drivers: fleet.len(),
        created: producer.created_count(),
        creating_seconds: played.creating.as_secs_f64(),
        measures,
        answer_times,
        driver_answers: drivers.answer_counts(),
        processor: played.processor,
        traces: collector.as_ref().map(TraceCollector::sent_traces),
        peer,
        logs: (!violations.is_empty()).then(|| dir.path().to_owned()),
        violations,
    })
}

/// What is known when everything is at rest.
struct LivesOutcome {
    /// From the first order's creation to the last's.
    creating: Duration,
    processor: ProcessorUse,
    violations: Vec<String>,
}

async fn play_lives(
    options: &OrdersOptions,
    testbed: &mut Testbed,
    producer: &OrderProducer,
    watch: ProcessorWatch,
) -> anyhow::Result<LivesOutcome> {
    let mut violations = Vec::new();
    let start = Instant::now();
    let mut all_created: Option<Instant> = None;
    let creating = producer.run(town::order_creations(options.rate.get(), options.order_count()));
    tokio::pin!(creating);
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let progress = OrderProgress::new(options.order_count() as usize, options.json);
    let created_at = loop {
        tokio::select! {
            problems = &mut creating, if all_created.is_none() => {
                violations.extend(problems);
                all_created = Some(Instant::now());
            }
            _ = looks.tick() => {
                violations.extend(testbed.processes.replace_ended()?);
                // Counting all that is open costs more the more there is: only at the end.
                let Some(created_at) = all_created else { continue };
                let unrest = OpenWork::read_open_work(&testbed.app.db, None).await?;
                progress.show_counts(producer.created_count(), unrest);
                if unrest.is_rest() {
                    break created_at;
                }
                if created_at.elapsed() > PATIENCE {
                    violations.push(unrest.describe_open_work(&testbed.app.db, PATIENCE).await?);
                    break created_at;
                }
            }
        }
    };
    let processor = watch.finish(&pids_of(testbed));
    Ok(LivesOutcome { creating: created_at - start, processor, violations })
}

fn pids_of(testbed: &Testbed) -> PidsByKind {
    let (postgres, redis) = testbed.server_pids();
    BTreeMap::from([
        ("api", vec![testbed.processes.serve_pid()]),
        ("workers", testbed.processes.worker_pids().collect()),
        ("postgres", vec![postgres]),
        ("redis", vec![redis]),
    ])
}
