//! `dispatchq bench bindings`: measures how many cycles per second bindings run through their slots, and how much CPU
//! time the cycles take.
//!
//! The benchmark runs on a `testbed`. The provider is a separate process, so that its CPU time is counted separately,
//! and it judges every call. No table keeps the due time of a cycle after its start, so the benchmark reads the rows
//! often enough to see it.
//!
//! * `stage`: the testbed, its servers and bindings. `provider`: the simulated provider and its verdict.
//! * `due_times`: due times of cycles, and their waits. `stops`: latency of stops. `measure`: measurements from the
//!   tables.
//! * `idle`: cost of many idle bindings. `idle_fill`: creates them.

mod due_times;
mod idle;
mod idle_fill;
mod measure;
mod provider;
mod stage;
mod stops;

use std::{
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

use anyhow::Context;
use chrono::{DateTime, Utc};
use clap::Args;
use model::binding::{BindingCommand, BindingConfig, IntervalFrom, StopReason, config::MillisRange};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    due_times::{CycleWaits, SeenDueTimes},
    measure::{CallMeasures, CycleMeasures},
    provider::JudgeVerdict,
    stage::{BindingsStage, announce_step},
    stops::MeasuredStops,
};
use super::{
    frame::{Bound, Figures, Measure},
    processor::{ProcessorUse, ProcessorWatch},
    spread::{SamplePercentiles, round_to_digits},
};
use accounts::{api_keys::AccountRole, key_admin};
use foundation::db;

/// Bounds of the warm-up between the first cycles and the measurement. The warm-up is a fraction of the measured time.
const LEAST_WARM_UP: Duration = Duration::from_secs(1);
const MOST_WARM_UP: Duration = Duration::from_secs(5);
/// Interval between checks for work.
const LOOK: Duration = Duration::from_millis(100);

/// Latency of the simulated provider.
pub(super) const PROVIDER_LATENCY: Duration = Duration::from_millis(50);
/// Timeout of a call in milliseconds.
const CALL_TIMEOUT_MS: u32 = 1_000;
/// Maximum counts; ids have this many digits.
const MOST_BINDINGS: i64 = 999_999;
const MOST_SERVERS: i64 = 9_999;

#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
The simulated provider answers after 50 ms and judges every call. The timeout of a call is 1 s. A binding starts its next cycle 300 \
to 800 ms after the end of the last one, or one each --every. One binding after another is stopped and started again during the run.\n\n\
The bound is the smaller of two rates. The slots allow calls / (50 ms + mean time of a claim in this run). The bindings require \
bindings / (mean interval + 50 ms), or bindings / --every.\n\n\
At the end every binding is stopped and the history is checked. The command exits with 1 if the provider or the history reports a \
violation, or if a binding did not stop. Speed is reported but does not affect the exit code. Calls that are refused as late are \
reported too: the provider may refuse calls of a process that was frozen.\n\n\
With --idle the bindings do nothing, because their next cycle is half a day away. The command measures their memory and the CPU use \
of the processes. Then one binding in fifty falls due, 10 ms after the previous one.\n\n\
Examples:\n  dispatchq bench bindings --kill-every 5 --json > bindings.json\n  \
dispatchq bench bindings --bindings 200 --servers 100 --every 500 --json\n  \
dispatchq bench bindings --idle 50000 --json > idle.json")]
pub struct BindingsOptions {
    /// Number of bindings that run
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=MOST_BINDINGS))]
    pub bindings: u32,

    /// Number of provider servers over which the bindings are distributed
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=MOST_SERVERS))]
    pub servers: u32,

    /// Seconds of measurement
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,

    /// Interval between starts of cycles in milliseconds [default: 300 to 800 ms after the end of the last cycle, at
    /// random]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=86_400_000))]
    pub every: Option<u32>,

    /// Kill a worker (SIGKILL) every N seconds, and start another
    #[arg(long, value_name = "N")]
    pub kill_every: Option<NonZeroU32>,

    /// Number of worker processes
    #[arg(long, value_name = "N", default_value = "4")]
    pub workers: NonZeroUsize,

    /// Limit of open calls in total
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub calls: u32,

    /// Limit of open calls per server
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub calls_per_server: u32,

    /// Measure this many idle bindings instead of running ones
    #[arg(long, value_name = "N", conflicts_with_all = ["bindings", "every", "kill_every"],
        value_parser = clap::value_parser!(u32).range(1..=MOST_BINDINGS))]
    pub idle: Option<u32>,

    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,
}

impl BindingsOptions {
    fn interval_ms(&self) -> MillisRange {
        let usual = BindingConfig::default().interval_ms;
        self.every.map_or(usual, |every| MillisRange { least: every, most: every })
    }

    /// Returns the start of the interval. With `--every`, the pace counts from the start of a cycle to the start of the
    /// next.
    fn interval_from(&self) -> IntervalFrom {
        if self.every.is_some() { IntervalFrom::Begin } else { IntervalFrom::End }
    }

    /// Returns the configuration of the bindings with this interval.
    fn binding_config(interval_ms: MillisRange, interval_from: IntervalFrom) -> BindingConfig {
        BindingConfig { interval_ms, interval_from, call_timeout_ms: CALL_TIMEOUT_MS, ..BindingConfig::default() }
    }

    fn measured_time(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    fn kill_period(&self) -> Option<Duration> {
        self.kill_every.map(|seconds| Duration::from_secs(seconds.get().into()))
    }

    /// Returns the cycles per second that the bindings would run without limits.
    fn demand_per_s(&self) -> f64 {
        let MillisRange { least, most } = self.interval_ms();
        let mean_interval_s = (f64::from(least) + f64::from(most)) / 2000.0;
        let latency_s = PROVIDER_LATENCY.as_secs_f64();
        let cycle_s = match self.interval_from() {
            IntervalFrom::End => mean_interval_s + latency_s,
            IntervalFrom::Begin => mean_interval_s.max(latency_s),
        };
        f64::from(self.bindings) / cycle_s
    }

    /// Returns the maximum cycles per second when a claim takes this long.
    fn bound_per_s(&self, claim_s: f64) -> f64 {
        let slots = self.calls.min(self.servers.saturating_mul(self.calls_per_server));
        let by_slots = f64::from(slots) / (PROVIDER_LATENCY.as_secs_f64() + claim_s);
        by_slots.min(self.demand_per_s())
    }
}

impl Measure for BindingsOptions {
    fn prints_json(&self) -> bool {
        self.json
    }

    async fn measure(&self) -> anyhow::Result<Figures> {
        match self.idle {
            Some(count) => idle::measure_idle_bindings(self, count).await,
            None => measure_bindings(self).await,
        }
    }
}

/// Results of a run, read when every binding is at rest.
struct BindingsOutcome {
    /// Start and end of the measurement, by the clock of Postgres.
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    stops: MeasuredStops,
    due_times: SeenDueTimes,
    calls: CallMeasures,
    processor: ProcessorUse,
    verdict: JudgeVerdict,
    violations: Vec<String>,
}

async fn measure_bindings(options: &BindingsOptions) -> anyhow::Result<Figures> {
    let mut stage = BindingsStage::start(options).await?;
    let played = play_bindings(options, &mut stage).await;
    let played = stage.testbed.dir.keep_if_failed(played)?;

    announce_step(options, "Every binding is at rest; reading the tables and checking the history.");
    let BindingsOutcome { from, to, stops, due_times, calls, processor, verdict, violations } = played;
    let kills = stage.testbed.processes.kill_count();
    let mut ended = stage.testbed.end_processes(violations).await;
    let measures = CycleMeasures::read_measures(&ended.app.config.database.url, from, to).await?;
    let waits = CycleWaits::measure_waits(&measures.begun, &due_times);
    ended.violations.extend(stops.problems);
    ended.violations.extend(verdict.find_violations(measures.never_arrived.unsigned_abs()));
    ended.violations.extend(waits.find_violation());
    ended.violations.extend(stage::check_history(&ended.app).await?);
    ended.app.core.close().await;

    let bound_per_s = options.bound_per_s(calls.claim_ms / 1000.0);
    let share = round_to_digits(measures.cycles_per_s() / bound_per_s.max(f64::EPSILON), 4);
    let mut figures = Figures::new(verdict.to_json());
    figures.extend(json!({
        "bindings": options.bindings,
        "servers": options.servers,
        "workers": options.workers,
        "calls": options.calls,
        "calls_per_server": options.calls_per_server,
        "interval_ms": options.interval_ms(),
        "interval_from": options.interval_from(),
        "seconds": round_to_digits(measures.seconds, 1),
        "cycles": measures.cycles,
        "failed": measures.failed,
        "cycles_per_s": round_to_digits(measures.cycles_per_s(), 1),
        "bound_per_s": round_to_digits(bound_per_s, 1),
        "demand_per_s": round_to_digits(options.demand_per_s(), 1),
        "share": share,
        "claim_ms": round_to_digits(calls.claim_ms, 2),
        "never_arrived": measures.never_arrived,
        "longest_wait_over_mean": waits.longest_over_mean().map(|ratio| round_to_digits(ratio, 2)),
        "mean_wait_ms": round_to_digits(waits.mean_us / 1000.0, 2),
        "waits": waits.cycles,
        "lateness_ms": waits.percentiles.to_json_ms(),
        "stops": stops.latencies_us.len(),
        "stop_latency_ms": SamplePercentiles::from_samples(stops.latencies_us).to_json_ms(),
        "kills": kills,
        "cpu_ms_per_cycle": processor.ms_per(measures.cycles.unsigned_abs()),
        "busiest_process": processor.busiest,
        "machine_busy_share": processor.busy_share(),
    }));
    figures.goal("share", share, Bound::AtLeast(if options.kill_every.is_some() { 0.8 } else { 0.86 }));
    figures.violations = ended.violations;
    figures.keep_logs(&mut ended.dir);
    Ok(figures)
}

async fn play_bindings(options: &BindingsOptions, stage: &mut BindingsStage) -> anyhow::Result<BindingsOutcome> {
    let (app, api) = (stage.testbed.app.clone(), stage.testbed.api.clone());
    let (_, key) = key_admin::create_permanent_key(&app.core.db, "bench", AccountRole::Operator, None).await?;
    stage.create_bindings(options).await?;
    stage.command_bindings(options.bindings, &BindingCommand::Start).await?;
    let warm_up = (options.measured_time() / 10).clamp(LEAST_WARM_UP, MOST_WARM_UP);
    let mut violations = stage.wait_for(warm_up).await?;
    announce_step(options, &format!("{} bindings run; measuring for {} s.", options.bindings, options.seconds));

    let end = CancellationToken::new();
    let _ends_tasks = end.clone().drop_guard();
    let stopping = tokio::spawn(stops::stop_in_turn(api, key, app.core.db.clone(), options.bindings, end.clone()));
    let watching = tokio::spawn(due_times::watch_due_times(app.core.db.clone(), end.clone()));
    let from = db::database_now(&app.core.db).await?;
    let mut watch = ProcessorWatch::start(&stage.pids_by_kind());
    violations.extend(let_time_pass(options, stage, &mut watch).await?);
    let processor = watch.finish(&stage.pids_by_kind());
    let to = db::database_now(&app.core.db).await?;
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

/// Waits for the end of the measured time, and kills workers if `--kill-every` is set. Returns a line for each process
/// that ended unexpectedly.
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        options: BindingsOptions,
    }

    fn parse(args: &str) -> Result<BindingsOptions, clap::Error> {
        Cli::try_parse_from(["bindings"].into_iter().chain(args.split_whitespace())).map(|cli| cli.options)
    }

    fn assert_near(seen: f64, wanted: f64) {
        assert!((seen - wanted).abs() < 0.01, "{seen} is not {wanted}");
    }

    #[test]
    fn slots_or_pace_bound_the_expected_rate() {
        let many = parse("").unwrap();
        assert_near(many.demand_per_s(), 1000.0 / 0.6);
        assert_near(many.bound_per_s(0.0), 1000.0);
        assert_near(many.bound_per_s(0.0125), 800.0);
        let few = parse("--bindings 200 --every 500").unwrap();
        assert_near(few.bound_per_s(0.0125), 400.0);
        assert_near(parse("--bindings 10 --every 1").unwrap().demand_per_s(), 200.0);
        assert_near(parse("--servers 10").unwrap().bound_per_s(0.0), 400.0);
    }
}
