//! The replay from first to last.

use std::{
    future::pending,
    io::{self, Write},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use tokio::time::{Interval, MissedTickBehavior, interval, interval_at};

use super::{
    admission,
    areas::{self, OpenAreas},
    choices, fleet,
    measure::ReplayMeasures,
    options::{ReplayOptions, SupplyStrategy},
    plan::ReplayPlan,
    report::ReplayReport,
    supply::{BoundSupply, RunningSupply},
};
use crate::testbed::{
    ConsoleLogin, Testbed,
    figures::JobLateness,
    producer::OrderProducer,
    progress::OrderProgress,
    rest::OpenWork,
    settings::{free_port, real_policy},
    signals::wait_for_interrupt,
};
use dispatch::{
    accounts::{api_keys::AccountRole, key_admin},
    audit,
};

/// How often the state of the orders is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// How often the gauges of areas are compared with the rows.
const COMPARE: Duration = Duration::from_secs(1);
/// What machines may need on top of the orders' own durations: a dead worker's lease, a repair, backoff.
const SLACK: Duration = Duration::from_secs(60);

/// Replays, prints the report, and answers whether the history is clean.
pub async fn run(options: ReplayOptions) -> anyhow::Result<bool> {
    // Dropping the replay takes down all it has started.
    tokio::select! {
        clean = replay_rides(&options) => clean,
        name = wait_for_interrupt() => bail!("the replay was interrupted by {name}"),
    }
}

async fn replay_rides(options: &ReplayOptions) -> anyhow::Result<bool> {
    options.check_combinations()?;
    let plan = ReplayPlan::load(options)?;
    let area_file = options.areas.as_deref().map(areas::read_file).transpose()?;
    let drivers = options.drivers.map_or_else(|| fleet::sufficient_drivers(&plan), std::num::NonZero::get);
    announce_replay(options, &plan, drivers);

    let bound = BoundSupply::bind_supply(options).await?;
    let shows_metrics = area_file.is_some();
    let mut testbed = Testbed::start_with(&bound.testbed_settings(options), |config| {
        if shows_metrics {
            config.http.admin_bind = format!("127.0.0.1:{}", free_port());
        }
    })
    .await?;
    let supply = bound.start(options, &plan, drivers, &testbed).await?;
    let areas = match area_file {
        Some(file) => Some(areas::open_areas(&testbed.app, file, options).await?),
        None => None,
    };
    let (_, key) = key_admin::create_permanent_key(&testbed.app.db, "replay", AccountRole::Producer, None).await?;
    let producer = OrderProducer::new(testbed.api.clone(), key).checking_first(options.check_first);
    let console = open_console(&testbed).await?;
    announce_console(options, console.as_ref());

    let played = play_plan(options, &plan, &mut testbed, &producer, &supply, areas).await;
    if played.is_err() {
        testbed.dir.keep_files();
    }
    let played = played.with_context(|| format!("the replay failed; logs: {}", testbed.dir.path().display()))?;
    let mut report = build_replay_report(options, plan, testbed, &supply, &producer, played).await?;
    if let Some(kept) = &mut report.kept {
        kept.console = console;
    }
    print_report(options, &report)?;
    Ok(report.is_clean())
}

/// What is known when everything is at rest.
struct ReplayOutcome {
    wall: Duration,
    violations: Vec<String>,
    areas: Option<OpenAreas>,
}

/// From the first order to rest.
async fn play_plan(
    options: &ReplayOptions,
    plan: &ReplayPlan,
    testbed: &mut Testbed,
    producer: &OrderProducer,
    supply: &RunningSupply,
    mut areas: Option<OpenAreas>,
) -> anyhow::Result<ReplayOutcome> {
    let start = Instant::now();
    let patience = rest_timeout(options);
    let mut violations = Vec::new();
    let mut all_created: Option<Instant> = None;
    let creating = producer.run(plan.order_creations(options));
    tokio::pin!(creating);
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut compares = interval(COMPARE);
    compares.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut kills = options.kill_every.map(Duration::from_secs_f64).map(|every| {
        let mut kills = interval_at(tokio::time::Instant::now() + every, every);
        kills.set_missed_tick_behavior(MissedTickBehavior::Delay);
        kills
    });
    let progress = OrderProgress::new(plan.orders.len(), options.json);
    loop {
        tokio::select! {
            problems = &mut creating, if all_created.is_none() => {
                violations.extend(problems);
                all_created = Some(Instant::now());
            }
            _ = looks.tick() => {
                violations.extend(testbed.processes.replace_ended()?);
                let unrest = OpenWork::read_open_work(&testbed.app.db, supply.simulated_partner()).await?;
                progress.show_counts(producer.created_count(), unrest);
                let Some(all_created) = all_created else { continue };
                if unrest.is_rest() {
                    break;
                }
                if all_created.elapsed() > patience {
                    violations.push(unrest.describe_open_work(&testbed.app.db, patience).await?);
                    break;
                }
            }
            _ = compares.tick() => {
                if let Some(areas) = &mut areas {
                    areas.gauges.compare_once(&testbed.app.db).await?;
                }
            }
            () = next_kill(&mut kills) => testbed.processes.kill_one().await?,
        }
    }
    Ok(ReplayOutcome { wall: start.elapsed(), violations, areas })
}

/// Stops the processes, so that the last figures are in, then measures and checks.
async fn build_replay_report(
    options: &ReplayOptions,
    plan: ReplayPlan,
    testbed: Testbed,
    supply: &RunningSupply,
    producer: &OrderProducer,
    played: ReplayOutcome,
) -> anyhow::Result<ReplayReport> {
    let (processes, app, redis, postgres, mut dir) = testbed.into_parts();
    let ReplayOutcome { wall, mut violations, areas } = played;
    let shown = match &areas {
        Some(areas) => Some(areas.gauges.scrape().await?),
        None => None,
    };
    let kills = processes.kill_count();
    violations.extend(processes.stop().await);
    let measures = ReplayMeasures::read_measures(&app.db, &app.store, options.replay_speed()).await?;
    violations.extend(audit::check_history(&app).await?.iter().map(ToString::to_string));
    let mut admission = None;
    if let (Some(OpenAreas { gauges, left_out }), Some(shown)) = (areas, shown) {
        let told = producer.told_places();
        let (summary, differences) = admission::compare_counts(&app, options, told, &shown, gauges, left_out).await?;
        violations.extend(differences);
        admission = Some(summary);
    }
    app.close().await;
    if !violations.is_empty() {
        dir.keep_files();
    }
    Ok(ReplayReport {
        orders: measures.outcomes.orders,
        skipped: plan.skipped,
        refused: producer.refusal_counts(),
        admission,
        strategy: options.strategy,
        drivers: supply.driver_count(),
        workers: options.workers.get(),
        speed: options.replay_speed(),
        seed: options.seed,
        wall_seconds: (wall.as_secs_f64() * 100.0).round() / 100.0,
        outcomes: measures.outcomes.by_status,
        held: measures.outcomes.held,
        attempts: measures.attempts,
        time_to_driver_s: measures.time_to_driver,
        lateness_ms: measures.lateness,
        repairs: measures.repairs,
        kills,
        driver_answers: supply.answer_counts(),
        alerts: measures.alerts,
        bookings: measures.bookings,
        partner: supply.partner_counters(),
        note: too_fast(options.replay_speed(), &measures.lateness, kills),
        logs: (!violations.is_empty()).then(|| dir.path().to_owned()),
        violations,
        kept: options.keep.then(|| Testbed::keep_servers(redis, postgres, &mut dir)),
    })
}

/// The speed divides the order's durations, not the work: at some speed every machine falls behind. A killed worker's
/// jobs are late by its lease, which says nothing about the speed.
fn too_fast(speed: f64, lateness: &JobLateness, kills: u64) -> Option<String> {
    let attempt_ms = real_policy(fleet::SERVICE_TYPE).attempt.div_f64(speed).as_millis();
    let behind = |late_ms: u64, tolerated_ms: u128| u128::from(late_ms) > tolerated_ms;
    (behind(lateness.p50, attempt_ms / 4) || (kills == 0 && behind(lateness.p99, attempt_ms))).then(|| {
        format!(
            "This machine could not keep up with speed {speed}: jobs started {} ms late (p50) to {} ms (p99), and an \
             attempt lasts {attempt_ms} ms. The outcomes say little about dispatch; choose a lower --speed.",
            lateness.p50, lateness.p99
        )
    })
}

/// How long after the last creation everything must be at rest.
fn rest_timeout(options: &ReplayOptions) -> Duration {
    let of_order = real_policy(options.strategy.service_type()).lifetime + choices::MAX_APPROACH + choices::MAX_TRIP;
    of_order.div_f64(options.replay_speed()) + SLACK
}

async fn next_kill(kills: &mut Option<Interval>) {
    match kills {
        Some(kills) => {
            kills.tick().await;
        }
        None => pending().await,
    }
}

/// Makes a login for the console that `serve` shows. `None`: it shows none.
async fn open_console(testbed: &Testbed) -> anyhow::Result<Option<ConsoleLogin>> {
    let console = &testbed.app.config.console;
    if !console.enabled {
        return Ok(None);
    }
    let (_, key) = key_admin::create_permanent_key(&testbed.app.db, "watch", AccountRole::Admin, None).await?;
    Ok(Some(ConsoleLogin { url: format!("{}{}", testbed.bases[0], console.path), key }))
}

/// Says where the replay can be watched while it is played.
fn announce_console(options: &ReplayOptions, console: Option<&ConsoleLogin>) {
    let Some(console) = console.filter(|_| !options.json) else { return };
    let ConsoleLogin { url, key } = console;
    eprintln!("Watch it at {url} (sign in with {key}).");
    eprintln!("Sign in:    {}", console.sign_in_link());
    if options.keep {
        eprintln!("Its servers keep running afterwards; how to end them is printed then.");
    } else {
        eprintln!("The console closes when the replay ends. To look around afterwards, run it with --keep.");
    }
}

fn announce_replay(options: &ReplayOptions, plan: &ReplayPlan, drivers: usize) {
    if options.json {
        return;
    }
    let source = if options.is_sample() { "the built-in sample" } else { "the rides" };
    let seconds = plan.creation_span().div_f64(options.replay_speed()).as_secs();
    eprintln!(
        "Replaying {} orders of {source} at speed {} with {}: about {}.",
        plan.orders.len(),
        options.replay_speed(),
        match options.strategy {
            SupplyStrategy::Fleet => format!("{drivers} drivers"),
            SupplyStrategy::Partner => "a partner".to_owned(),
        },
        humantime::format_duration(Duration::from_secs(seconds.max(1)))
    );
    if seconds > 3600 && !options.fold_days {
        eprintln!("The dates of the rides are kept; --fold-days plays all of them on one day.");
    }
}

/// A reader that has seen enough (`| head`) is no failure.
fn print_report(options: &ReplayOptions, report: &ReplayReport) -> anyhow::Result<()> {
    let text = if options.json { serde_json::to_string(report)? } else { report.to_text() };
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot print the report"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_falls_behind_is_told_from_one_that_does_not() {
        let lateness = |p50, p99| JobLateness { p50, p99, max: 9_000, jobs: 1 };
        assert_eq!(too_fast(300.0, &lateness(1, 8), 0), None);
        assert_eq!(too_fast(300.0, &lateness(1, 8_000), 5), None);
        assert!(too_fast(1200.0, &lateness(16, 1_500), 0).unwrap().contains("lower --speed"));
        assert!(too_fast(1200.0, &lateness(1_100, 2_000), 5).is_some());
    }
}
