//! The replay from start to end.

use std::time::Duration;

use anyhow::bail;
use tokio::time::Instant;

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
    play::{EndedTestbed, PlayPlan, PlayedOrders, play_orders},
    print,
    producer::OrderProducer,
    settings::{free_port, real_policy},
    signals::wait_for_interrupt,
};
use accounts::{api_keys::AccountRole, key_admin};

/// Interval between comparisons of the areas' gauges with the rows.
const COMPARE: Duration = Duration::from_secs(1);
/// Extra time for machines: the lease of a dead worker, a repair, backoff.
const SLACK: Duration = Duration::from_secs(60);

/// Runs the replay and prints the report. Returns whether the history is clean.
pub async fn run(options: ReplayOptions) -> anyhow::Result<bool> {
    // Dropping the replay stops everything that it has started.
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
    let mut areas = match area_file {
        Some(file) => Some(areas::open_areas(&testbed.app, file, options).await?),
        None => None,
    };
    let producer = OrderProducer::hire(&testbed, "replay").await?.checking_first(options.check_first);
    let console = open_console(&testbed).await?;
    announce_console(options, console.as_ref());

    let played = play_plan(options, &plan, &mut testbed, &producer, &supply, &mut areas).await;
    let played = testbed.dir.keep_if_failed(played)?;
    let mut report = build_replay_report(options, plan, testbed, &supply, &producer, played, areas).await?;
    if let Some(kept) = &mut report.kept {
        kept.console = console;
    }
    let text = if options.json { serde_json::to_string(&report)? } else { report.to_text() };
    print::print_line(&text, false)?;
    Ok(report.is_clean())
}

/// Plays the plan from the first order to rest. Kills workers and compares gauges during the run.
async fn play_plan(
    options: &ReplayOptions,
    plan: &ReplayPlan,
    testbed: &mut Testbed,
    producer: &OrderProducer,
    supply: &RunningSupply,
    areas: &mut Option<OpenAreas>,
) -> anyhow::Result<PlayedOrders> {
    let play = PlayPlan {
        producer,
        count: plan.orders.len(),
        quiet: options.json,
        partner: supply.simulated_partner(),
        patience: rest_timeout(options),
    };
    let kill_every = options.kill_every.map(Duration::from_secs_f64);
    let (mut next_kill, mut next_compare) = (kill_every.map(|every| Instant::now() + every), Instant::now());
    let on_look = async |testbed: &mut Testbed, _: Option<Instant>| {
        if let (Some(at), Some(every)) = (next_kill, kill_every)
            && Instant::now() >= at
        {
            testbed.processes.kill_one().await?;
            next_kill = Some(Instant::now() + every);
        }
        if let Some(areas) = areas.as_mut()
            && Instant::now() >= next_compare
        {
            areas.gauges.compare_once(&testbed.app.core.db).await?;
            next_compare = Instant::now() + COMPARE;
        }
        Ok(false)
    };
    play_orders(testbed, play, plan.order_creations(options), on_look).await
}

/// Stops the processes, so that the last figures are written, then measures and checks.
async fn build_replay_report(
    options: &ReplayOptions,
    plan: ReplayPlan,
    testbed: Testbed,
    supply: &RunningSupply,
    producer: &OrderProducer,
    played: PlayedOrders,
    areas: Option<OpenAreas>,
) -> anyhow::Result<ReplayReport> {
    let shown = match &areas {
        Some(areas) => Some(areas.gauges.scrape().await?),
        None => None,
    };
    let kills = testbed.processes.kill_count();
    let mut ended = testbed.end_processes(played.violations).await;
    let measures =
        ReplayMeasures::read_measures(&ended.app.core.db, &ended.app.core.store, options.replay_speed()).await?;
    let mut admission = None;
    if let (Some(OpenAreas { gauges, left_out }), Some(shown)) = (areas, shown) {
        let told = producer.told_places();
        let compared = admission::compare_counts(&ended.app, options, told, &shown, gauges, left_out).await?;
        ended.violations.extend(compared.1);
        admission = Some(compared.0);
    }
    ended.check_history().await?;
    let logs = ended.logs();
    let EndedTestbed { redis, postgres, mut dir, violations, .. } = ended;
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
        wall_seconds: (played.wall.as_secs_f64() * 100.0).round() / 100.0,
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
        logs,
        violations,
        kept: options.keep.then(|| Testbed::keep_servers(redis, postgres, &mut dir)),
    })
}

/// Returns a note if the machine was too slow. The speed divides the durations of orders, not the work, so every
/// machine has a maximum speed. Jobs of a killed worker are late by its lease, which is independent of the speed.
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

/// Returns the maximum time from the last creation until everything is at rest.
fn rest_timeout(options: &ReplayOptions) -> Duration {
    let of_order = real_policy(options.strategy.service_type()).lifetime + choices::MAX_APPROACH + choices::MAX_TRIP;
    of_order.div_f64(options.replay_speed()) + SLACK
}

/// Creates a login for the console of `serve`. `None` if the console is disabled.
async fn open_console(testbed: &Testbed) -> anyhow::Result<Option<ConsoleLogin>> {
    let console = &testbed.app.config.console;
    if !console.enabled {
        return Ok(None);
    }
    let (_, key) = key_admin::create_permanent_key(&testbed.app.core.db, "watch", AccountRole::Admin, None).await?;
    Ok(Some(ConsoleLogin { url: format!("{}{}", testbed.bases[0], console.path), key }))
}

/// Prints the address of the console during the replay.
fn announce_console(options: &ReplayOptions, console: Option<&ConsoleLogin>) {
    let Some(console) = console.filter(|_| !options.json) else { return };
    let ConsoleLogin { url, key } = console;
    eprintln!("Watch it at {url} (sign in with {key}).");
    eprintln!("Sign in:    {}", console.sign_in_link());
    if options.keep {
        eprintln!("Its servers keep running afterwards; the report says how to stop them.");
    } else {
        eprintln!("The console closes when the replay ends. To keep the data, run it with --keep.");
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
