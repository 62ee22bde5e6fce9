//! From the first cycle to rest, and what came of it.

use std::time::Duration;

use anyhow::{Context, bail};
use chrono::{DateTime, Utc};
use dispatch::accounts::{api_keys::AccountRole, key_admin};
use foundation::db;
use model::binding::{BindingCommand, StopReason};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    due_times::{self, CycleWaits, SeenDueTimes},
    idle,
    measure::{CallMeasures, CycleMeasures},
    options::BindingsOptions,
    provider::JudgeVerdict,
    report::BindingsReport,
    stage::{self, BindingsStage, announce_step},
    stops::{self, MeasuredStops},
};
use crate::{
    bench::{
        machine::{MachineInfo, SoftwareVersions},
        processor::{ProcessorUse, ProcessorWatch},
    },
    testbed::{print, signals::wait_for_interrupt},
};

/// From the first cycles until they are measured: a part of the measured time, within these.
const LEAST_WARM_UP: Duration = Duration::from_secs(1);
const MOST_WARM_UP: Duration = Duration::from_secs(5);
/// How often is looked for what is to be done.
const LOOK: Duration = Duration::from_millis(100);

/// Measures, prints the report, and answers whether neither the provider nor the history has found anything.
pub async fn run(options: BindingsOptions) -> anyhow::Result<bool> {
    // Dropping it takes down all it has started.
    let (text, json, is_clean) = tokio::select! {
        reported = measure_and_report(&options) => reported?,
        name = wait_for_interrupt() => bail!("the measurement was interrupted by {name}"),
    };
    print::print_report(&text, &json, options.json)?;
    Ok(is_clean)
}

async fn measure_and_report(options: &BindingsOptions) -> anyhow::Result<(String, Value, bool)> {
    if let Some(count) = options.idle {
        let report = idle::measure_idle_bindings(options, count).await?;
        return Ok((report.to_text(), report.to_json(), report.is_clean()));
    }
    let report = measure_bindings(options).await?;
    Ok((report.to_text(), report.to_json(), report.is_clean()))
}

/// What is known when every binding is at rest.
struct BindingsOutcome {
    /// The time that was measured, by Postgres.
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    stops: MeasuredStops,
    due_times: SeenDueTimes,
    calls: CallMeasures,
    processor: ProcessorUse,
    verdict: JudgeVerdict,
    violations: Vec<String>,
}

async fn measure_bindings(options: &BindingsOptions) -> anyhow::Result<BindingsReport> {
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let mut stage = BindingsStage::start(options).await?;
    let played = play_bindings(options, &mut stage).await;
    if played.is_err() {
        stage.testbed.dir.keep_files();
    }
    let played =
        played.with_context(|| format!("the measurement failed; logs: {}", stage.testbed.dir.path().display()))?;

    announce_step(options, "Every binding is at rest; reading the tables and checking the history.");
    let (processes, app, redis, postgres, mut dir) = stage.testbed.into_parts();
    let BindingsOutcome { from, to, stops, due_times, calls, processor, verdict, mut violations } = played;
    let kills = processes.kill_count();
    violations.extend(processes.stop().await);
    let measures = CycleMeasures::read_measures(&app.config.database.url, from, to).await?;
    let waits = CycleWaits::measure_waits(&measures.begun, &due_times);
    violations.extend(stops.problems.iter().cloned());
    violations.extend(verdict.find_violations(measures.never_arrived.unsigned_abs()));
    violations.extend(waits.find_violation());
    violations.extend(stage::check_history(&app).await?);
    app.close().await;
    drop((redis, postgres));
    if !violations.is_empty() {
        dir.keep_files();
    }
    Ok(BindingsReport {
        options: options.clone(),
        machine,
        versions,
        measures,
        calls,
        waits,
        stops,
        verdict,
        processor,
        kills,
        logs: (!violations.is_empty()).then(|| dir.path().to_owned()),
        violations,
    })
}

async fn play_bindings(options: &BindingsOptions, stage: &mut BindingsStage) -> anyhow::Result<BindingsOutcome> {
    let (app, api) = (stage.testbed.app.clone(), stage.testbed.api.clone());
    let (_, key) = key_admin::create_permanent_key(&app.db, "bench", AccountRole::Operator, None).await?;
    stage.create_bindings(options).await?;
    stage.command_bindings(options.bindings, &BindingCommand::Start).await?;
    let warm_up = (options.measured_time() / 10).clamp(LEAST_WARM_UP, MOST_WARM_UP);
    let mut violations = stage.wait_for(warm_up).await?;
    announce_step(options, &format!("{} bindings run; measuring for {} s.", options.bindings, options.seconds));

    let end = CancellationToken::new();
    let _ends_tasks = end.clone().drop_guard();
    let stopping = tokio::spawn(stops::stop_in_turn(api, key, app.db.clone(), options.bindings, end.clone()));
    let watching = tokio::spawn(due_times::watch_due_times(app.db.clone(), end.clone()));
    let from = db::database_now(&app.db).await?;
    let mut watch = ProcessorWatch::start(&stage.pids_by_kind());
    violations.extend(let_time_pass(options, stage, &mut watch).await?);
    let processor = watch.finish(&stage.pids_by_kind());
    let to = db::database_now(&app.db).await?;
    let calls = stage.read_call_measures().await?;
    end.cancel();
    let stops = stopping.await.context("the stops panicked")??;
    let due_times = watching.await.context("the watch of due times panicked")?;

    announce_step(options, "Stopping every binding.");
    let stop = BindingCommand::Stop { reason: StopReason::ManualStop };
    stage.command_bindings(options.bindings, &stop).await?;
    violations.extend(stage.wait_for_rest().await?);
    let verdict = stage.provider.read_verdict().await?;
    Ok(BindingsOutcome { from, to, stops, due_times, calls, processor, verdict, violations })
}

/// Lets the measured time pass, and kills workers meanwhile if they are to be killed. Returns a line for each process that ended
/// by itself.
async fn let_time_pass(
    options: &BindingsOptions,
    stage: &mut BindingsStage,
    watch: &mut ProcessorWatch,
) -> anyhow::Result<Vec<String>> {
    let begin = Instant::now();
    let end = begin + options.measured_time();
    let mut next_kill = options.kill_period().map(|period| begin + period);
    let mut problems = Vec::new();
    while Instant::now() < end {
        if let (Some(at), Some(period)) = (next_kill, options.kill_period())
            && Instant::now() >= at
        {
            stage.kill_any_worker(watch).await?;
            next_kill = Some(Instant::now() + period);
        }
        let left = end.saturating_duration_since(Instant::now());
        problems.extend(stage.wait_for(LOOK.min(left)).await?);
    }
    Ok(problems)
}
