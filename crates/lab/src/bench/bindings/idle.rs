//! Cost of many idle bindings, and lateness of those that fall due among them.

use std::{collections::BTreeMap, time::Duration};

use anyhow::ensure;
use chrono::{DateTime, TimeDelta, Utc};
use foundation::core::Core;
use serde_json::json;
use tokio::time::Instant;

use super::{
    BindingsOptions,
    due_times::CycleWaits,
    idle_fill,
    stage::{self, BindingsStage, announce_step},
};
use crate::bench::{
    frame::Figures,
    processor::{ProcessorUse, ProcessorWatch},
    redis_info,
    spread::round_to_digits,
};
use foundation::db;

/// One binding in this many falls due, [`APART`] after the previous one.
const DUE_ONE_IN: u32 = 50;
const APART: TimeDelta = TimeDelta::milliseconds(10);
/// Time until the first of these bindings is due, long enough to move all of them.
const AHEAD: TimeDelta = TimeDelta::seconds(10);
/// Pause before the measurement, for preparing statements and reading pages.
const SETTLE_DOWN: Duration = Duration::from_secs(3);
/// Extra time for the due bindings to run.
const DUE_WAIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(200);

/// Measurements of idle bindings.
#[derive(Debug)]
struct IdleMeasures {
    redis_bytes: u64,
    postgres_bytes: i64,
    /// CPU use while the bindings are idle.
    processor: ProcessorUse,
    /// Number of bindings that fell due, and their waits.
    due: u32,
    waits: CycleWaits,
}

/// Returns the number of bindings that fall due.
fn due_count(count: u32) -> u32 {
    (count / DUE_ONE_IN).clamp(1, count)
}

pub(super) async fn measure_idle_bindings(options: &BindingsOptions, count: u32) -> anyhow::Result<Figures> {
    let mut stage = BindingsStage::start(options).await?;
    let mut violations = Vec::new();
    let measured = measure_stage(options, count, &mut stage, &mut violations).await;
    let measures = stage.testbed.dir.keep_if_failed(measured)?;
    let verdict = stage.provider.read_verdict().await?;
    let mut ended = stage.testbed.end_processes(violations).await;
    ended.violations.extend(verdict.find_violations(0));
    ended.violations.extend(measures.waits.find_violation());
    ended.violations.extend(stage::check_history(&ended.app).await?);
    ended.app.core.close().await;
    let IdleMeasures { redis_bytes, postgres_bytes, processor, due, waits } = measures;
    let seconds = round_to_digits(processor.elapsed.as_secs_f64(), 1);
    let per_s = |ms: u64| round_to_digits(ms as f64 / processor.elapsed.as_secs_f64().max(f64::EPSILON), 2);
    let mut figures = Figures::new(verdict.to_json());
    figures.extend(json!({
        "idle": count,
        "servers": options.servers,
        "workers": options.workers,
        "seconds": seconds,
        "redis_bytes_per_binding": round_to_digits(redis_bytes as f64 / f64::from(count), 1),
        "postgres_bytes_per_binding": round_to_digits(postgres_bytes as f64 / f64::from(count), 1),
        "cpu_ms_per_s": processor.by_kind.iter().map(|(kind, ms)| (*kind, per_s(*ms))).collect::<BTreeMap<_, _>>(),
        "busiest_process": processor.busiest,
        "machine_busy_share": processor.busy_share(),
        "due": due,
        "waits": waits.cycles,
        "lateness_ms": waits.percentiles.to_json_ms(),
    }));
    figures.violations = ended.violations;
    figures.keep_logs(&mut ended.dir);
    Ok(figures)
}

async fn measure_stage(
    options: &BindingsOptions,
    count: u32,
    stage: &mut BindingsStage,
    violations: &mut Vec<String>,
) -> anyhow::Result<IdleMeasures> {
    let (app, port) = (stage.testbed.app.clone(), stage.testbed.redis.port());
    let (redis_before, postgres_before) =
        (redis_info::read_used_memory(port).await?, idle_fill::read_table_bytes(&app.core).await?);
    idle_fill::insert_bindings(options, &app.config.database.url, count).await?;
    let postgres_bytes = idle_fill::read_table_bytes(&app.core).await? - postgres_before;
    idle_fill::enqueue_bindings(&app).await?;
    let redis_bytes = redis_info::read_used_memory(port).await?.saturating_sub(redis_before);

    violations.extend(stage.wait_for(SETTLE_DOWN).await?);
    announce_step(options, &format!("{count} bindings idle; measuring for {} s.", options.seconds));
    let watch = ProcessorWatch::start(&stage.pids_by_kind());
    violations.extend(stage.wait_for(options.measured_time()).await?);
    let processor = watch.finish(&stage.pids_by_kind());

    let due = due_count(count);
    announce_step(options, &format!("{due} of them fall due."));
    let now = db::database_now(&app.core.db).await?;
    let first = DateTime::from_timestamp_millis(now.timestamp_millis()).unwrap_or(now) + AHEAD;
    idle_fill::make_due(&app.core, due, first, APART).await?;
    let now = db::database_now(&app.core.db).await?;
    ensure!(now < first, "this machine is too busy: bindings were due before all of them were moved");
    violations.extend(wait_until_due_ones_rest(stage, due, first).await?);
    let waits = read_waits(&app.core, first).await?;
    Ok(IdleMeasures { redis_bytes, postgres_bytes, processor, due, waits })
}

/// Waits until each due binding has run its cycle. Returns a problem if not all run in time.
async fn wait_until_due_ones_rest(
    stage: &mut BindingsStage,
    due: u32,
    first: DateTime<Utc>,
) -> anyhow::Result<Vec<String>> {
    let ahead = (first - db::database_now(&stage.testbed.app.core.db).await?).to_std().unwrap_or_default();
    let end = Instant::now() + ahead + APART.to_std().unwrap_or_default() * due + DUE_WAIT;
    let mut problems = Vec::new();
    loop {
        problems.extend(stage.wait_for(LOOK).await?);
        let ended: i64 = sqlx::query_scalar(
            "-- cycles that have ended
             SELECT count(*) FROM transactions WHERE ended_at IS NOT NULL",
        )
        .fetch_one(&stage.testbed.app.core.db)
        .await?;
        if ended >= i64::from(due) {
            return Ok(problems);
        }
        if Instant::now() >= end {
            problems.push(format!("only {ended} of {due} bindings that fell due have run their cycle"));
            return Ok(problems);
        }
    }
}

/// Returns the lateness of the due bindings. Each has run once.
async fn read_waits(core: &Core, first: DateTime<Utc>) -> Result<CycleWaits, sqlx::Error> {
    let begun: Vec<(i32, DateTime<Utc>)> = sqlx::query_as(
        "-- cycles of bindings that fell due
         SELECT right(binding_id, 6)::integer, started_at FROM transactions WHERE cycle = 1",
    )
    .fetch_all(&core.db)
    .await?;
    Ok(CycleWaits::from_waits(begun.into_iter().map(|(binding, at)| at - (first + APART * (binding - 1)))))
}
