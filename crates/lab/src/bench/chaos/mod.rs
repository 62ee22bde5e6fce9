//! `dispatchq bench chaos`: injects one fault after another while orders are created, then compares the answers to
//! clients with the tables.
//!
//! The benchmark runs on a `testbed` with two `serve`, three `work`, private servers behind proxies, and a simulated
//! partner. The seed determines the faults and the decisions of producers and drivers. The interleaving depends on the
//! machine.
//!
//! * `fault`: kinds of faults. `schedule`: the plan of faults. Both pure.
//! * `client`: requests of clients that need an answer. `hang_up`: requests of clients that do not wait for one.
//!   `crowd`: state shared by all clients. `producers`, `drivers`, `callers`: behaviour of each kind of client.
//!   `claims`: answers that clients got.
//! * `stage`: the installation. `inflict`: inflicts a fault, with `on_postgres`, `on_redis` and `on_clients`.
//! * `watch`: lateness in 5 s windows, from the workers' metrics. `recovery`: time to recover after a fault.
//! * `verify`: compares answers, receivers and history with the tables.
//!
//! `bench upgrade` and `bench cluster` use the same clients, receivers and checks; `played` contains the shared parts.

mod callers;
pub(super) mod claims;
pub(super) mod client;
pub(super) mod crowd;
mod drivers;
mod fault;
mod hang_up;
mod inflict;
mod on_clients;
mod on_postgres;
mod on_redis;
pub(super) mod producers;
pub(super) mod recovery;
mod schedule;
mod stage;
pub(super) mod verify;
pub(super) mod watch;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    iter::once,
    num::NonZeroU32,
    time::Duration,
};

use anyhow::Context;
use clap::{
    Args, ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use serde::Serialize;
use serde_json::{Map, json};
use tokio::time::Instant;

use self::{
    claims::ClaimLedger,
    client::ChaosClient,
    crowd::{ChaosCrowd, CrowdPlan},
    fault::ChaosFault,
    inflict::inflict_fault,
    recovery::FaultRecovery,
    schedule::PlannedFault,
    stage::ChaosStage,
    watch::LatenessWatch,
};
use super::{
    frame::{Figures, Measure},
    machine::IS_OPTIMIZED,
    played::{self, CalledParties, PlayedStage},
    spread::round_to_digits,
};
use crate::testbed::{Testbed, figures, partner, print, settings::parse_number};
use settings::Config;

const SERVES: usize = 2;
const WORKERS: usize = 3;
/// Minimum length of a run in which recovery is judged. Shorter runs have too little time between two faults.
const JUDGED_FROM_MINUTES: f64 = 2.0;
const USUAL_SPEED: f64 = 60.0;
/// Drivers per order created per second, at the default speed. About five of them are busy. Orders that waited during a
/// fault need free drivers. With too few drivers they would search again every 250 ms, and this load would come from
/// the speed, not from the fault.
const DRIVERS_PER_RATE: u32 = 16;

#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Faults are injected one at a time, in an order that the seed determines. After each fault there is time to recover. --speed divides the \
durations of orders. At 60 an order's half hour takes 30 s and an offer is valid for 2 s, which is too short for a driver's answer on a slow \
machine. Leases, HTTP timeouts and repairs keep their durations.\n\n\
After the last fault the run waits until every order is final or held and every message is delivered. Then it compares the answers \
to clients with the tables, checks the history, and compares received messages with those that count as delivered. It exits with 1 \
if anything differs. A release build that runs for 2 minutes or more also fails if, from 10 s after a fault on, lateness p99 over \
any 5 s window is 100 ms or more, or timers are missing.\n\n\
Example:\n  dispatchq bench chaos --minutes 8 --seed 7 --json > chaos.json")]
pub struct ChaosOptions {
    /// Minutes in which orders are created and faults injected
    #[arg(long, value_name = "N", default_value_t = 5.0, value_parser = parse_number(0.2, 24.0 * 60.0))]
    pub minutes: f64,

    /// Number of orders created per second
    #[arg(long, value_name = "N", default_value = "20")]
    pub rate: NonZeroU32,

    /// Number of producers, each of which creates one order after another; a slow machine may then create fewer than
    /// --rate [default: unlimited]
    #[arg(long, value_name = "N")]
    pub producers: Option<NonZeroU32>,

    /// Divisor for the durations of orders, of trips and of the partner
    #[arg(long, value_name = "X", default_value_t = USUAL_SPEED, value_parser = parse_number(1.0, USUAL_SPEED))]
    pub speed: f64,

    /// Seed of the faults and of the clients' decisions
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Faults to inject, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all", value_parser = fault_choice_parser())]
    pub faults: Vec<FaultChoice>,

    /// Put a PgBouncer in transaction mode between the processes and Postgres
    #[arg(long)]
    pub pooler: bool,

    /// Print one JSON object; the tables go to stderr
    #[arg(long)]
    pub json: bool,
}

/// One item of the list of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultChoice {
    All,
    One(ChaosFault),
}

fn fault_choice_parser() -> impl TypedValueParser<Value = FaultChoice> {
    let all = PossibleValue::new("all").help("All of them, round after round");
    let names = ChaosFault::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    PossibleValuesParser::new(once(all).chain(names))
        .map(|name| ChaosFault::from_str(&name, false).map_or(FaultChoice::All, FaultChoice::One))
}

impl ChaosOptions {
    /// Returns the faults of one round.
    fn faults_of_round(&self) -> Vec<ChaosFault> {
        let of = |choice: &FaultChoice| match *choice {
            FaultChoice::All => ChaosFault::value_variants().to_vec(),
            FaultChoice::One(fault) => vec![fault],
        };
        self.faults.iter().flat_map(of).collect()
    }

    /// Returns the number of drivers. At a lower speed trips take longer, so more drivers are needed.
    fn driver_count(&self) -> usize {
        (f64::from(self.rate.get() * DRIVERS_PER_RATE) * (USUAL_SPEED / self.speed)).ceil() as usize
    }

    /// Returns whether the run is long enough to judge the recovery after each fault.
    fn leaves_time_to_recover(&self) -> bool {
        self.minutes >= JUDGED_FROM_MINUTES
    }
}

/// Count of a fault, and its worst recovery.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct FaultSummary {
    count: u32,
    #[serde(flatten)]
    recovery: FaultRecovery,
}

impl Measure for ChaosOptions {
    fn prints_json(&self) -> bool {
        self.json
    }

    async fn measure(&self) -> anyhow::Result<Figures> {
        let parties = CalledParties::start_listening(self.seed, self.speed).await?;
        let settings = parties.settings(SERVES, WORKERS);
        let CalledParties { sim, sim_options, receivers } = parties;
        let configure = |config: &mut Config| {
            played::ask_several(config);
            played::clean_up_often(config);
            played::ask_partners_for_long(config);
            config.database.pooler = self.pooler;
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
        let played = play_chaos(self, &mut stage, &ledger, sim_options.callback_secret).await;
        let played = stage.testbed.dir.keep_if_failed(played)?;
        build_figures(self, stage, &ledger, played).await
    }
}

/// Results of a run, read when everything is at rest.
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
    let db = stage.testbed.app.core.db.clone();
    let plan = CrowdPlan { name: "chaos", seed: options.seed, speed: options.speed, drivers: options.driver_count() };
    let client = ChaosClient::new(&stage.testbed.bases, ledger.clone())?;
    let (crowd, mut clients) = ChaosCrowd::send_in(&stage.testbed.app, plan, client).await?;
    let (caller, caller_db) = (crowd.clone(), db.clone());
    clients.spawn(async move {
        if let Err(error) = callers::repeat_job_ids(caller, caller_db, callback_secret).await {
            tracing::error!(%error, "The partner cannot send callbacks.");
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

/// Inflicts all planned faults, each at its time.
async fn make_faults(
    options: &ChaosOptions,
    stage: &mut ChaosStage,
    begin: Instant,
) -> anyhow::Result<BTreeMap<ChaosFault, FaultSummary>> {
    let mut faults: BTreeMap<ChaosFault, FaultSummary> = BTreeMap::new();
    // Servers take time to start, which delays all later faults.
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
        let (waited, timers) = tokio::join!(stage.wait_until(next), recovery::wait_for_timers(&app.core, end, next));
        waited?;
        recovery_of.push((planned.fault, end, next, timers));
    }
    for (fault, end, next, timers) in recovery_of {
        let recovery = FaultRecovery::new(&recovery::read_windows(&stage.watch, end, next), timers);
        match faults.entry(fault) {
            Entry::Occupied(mut of) => {
                let summary = of.get_mut();
                summary.count += 1;
                summary.recovery = std::mem::take(&mut summary.recovery).merge_worst(recovery);
            }
            Entry::Vacant(of) => {
                of.insert(FaultSummary { count: 1, recovery });
            }
        }
    }
    Ok(faults)
}

/// Prints the current fault, so that a long run shows its progress.
fn announce_fault(options: &ChaosOptions, begin: Instant, planned: &PlannedFault) {
    let line = format!(
        "{:6.1} s  {} for {:.1} s",
        begin.elapsed().as_secs_f64(),
        planned.fault.cli_name(),
        planned.lasts.as_secs_f64()
    );
    let _ = print::print_line(&line, options.json);
}

async fn build_figures(
    options: &ChaosOptions,
    stage: ChaosStage,
    ledger: &ClaimLedger,
    played: ChaosOutcome,
) -> anyhow::Result<Figures> {
    let ChaosStage { testbed, receivers, problems, false_starts, .. } = stage;
    let mut violations = played.violations;
    violations.extend(problems);
    violations.extend(played::let_long_polls_end(&testbed.app.core.db).await?);
    let lateness = figures::read_lateness(&testbed.app.core.store).await?;
    let Testbed { processes, app, ways, redis, postgres, mut dir, .. } = testbed;
    // Time goals are not judged in a short run or a debug build. With a lifetime of 30 s, a busy machine misses them.
    let judges_time = options.leaves_time_to_recover() && IS_OPTIMIZED;
    if judges_time {
        let missed = |(fault, of): (&ChaosFault, &FaultSummary)| {
            let lines = of.recovery.missed_goals().into_iter();
            lines.map(|missed| format!("{}: {missed}", fault.cli_name())).collect::<Vec<_>>()
        };
        violations.extend(played.faults.iter().flat_map(missed));
    }
    let (mut figures, _) = played::verify_run(processes, &app, ledger, &receivers, judges_time, violations).await?;
    app.core.close().await;
    let faults: Map<_, _> = played.faults.into_iter().map(|(fault, of)| (fault.cli_name(), json!(of))).collect();
    figures.extend(json!({
        "seed": options.seed,
        "minutes": options.minutes,
        "rate": options.rate,
        "producers": options.producers,
        "speed": options.speed,
        "pooler": options.pooler,
        "serves": SERVES,
        "workers": WORKERS,
        "wall_seconds": round_to_digits(played.wall.as_secs_f64(), 1),
        "faults": faults,
        "false_starts": false_starts,
        "lateness_ms": lateness,
    }));
    figures.keep_logs(&mut dir);
    drop((ways, redis, postgres));
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        options: ChaosOptions,
    }

    #[test]
    fn chaos_plays_all_faults_by_default() {
        let parse = |args: &str| Cli::try_parse_from(["chaos"].into_iter().chain(args.split_whitespace()));
        assert_eq!(parse("").unwrap().options.faults_of_round(), ChaosFault::value_variants());
        assert_eq!(parse("--faults all").unwrap().options.faults_of_round(), ChaosFault::value_variants());
        let some = parse("--faults flush,half-open --minutes 1").unwrap().options;
        assert_eq!(some.faults_of_round(), [ChaosFault::Flush, ChaosFault::HalfOpen]);
        assert!(!some.leaves_time_to_recover());
        assert_eq!(parse("--rate 5").unwrap().options.driver_count(), 80);
        assert_eq!(parse("--rate 2 --speed 15").unwrap().options.driver_count(), 128);
        for bad in
            ["--faults odd", "--minutes 0", "--rate 0", "--producers 0", "--speed 0", "--speed 61", "--speed NaN"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
