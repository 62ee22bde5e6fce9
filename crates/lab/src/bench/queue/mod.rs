//! `dispatchq bench queue`: throughput, lateness, memory and idle cost of the queue engine on this machine.
//!
//! Redis is a private server with production settings, and the jobs are those of `jobs`. Workers are processes of this
//! binary that run the real `queue::Runtime` with a handler that does nothing. Every figure is the median of several
//! rounds.

mod child;
mod herd;
mod idle;
mod lateness;
mod memory;
mod peer;
mod pickup;
mod runs;
mod stage;
mod throughput;
mod timers;
pub mod worker;

use std::{collections::BTreeMap, num::NonZeroUsize, path::PathBuf, time::Duration};

use anyhow::Context;
use clap::Args;
use serde_json::{Map, Value, json};

use self::{peer::PeerLateness, stage::QueueStage};
use super::{
    frame::{Bound, Figures, Measure},
    redis_info,
    spread::{RoundSpread, SamplePercentiles, us_to_ms},
};
use crate::testbed::print;

/// Jobs performed at once in each queue of a measured worker.
const CONCURRENCY: usize = 1000;
const GOALS: [(&str, Bound); 9] = [
    ("process_per_s", Bound::AtLeast(130_000.0)),
    ("enqueue_per_s", Bound::AtLeast(120_000.0)),
    ("lateness_p50_ms", Bound::AtMost(2.0)),
    ("lateness_p99_ms", Bound::AtMost(5.0)),
    ("pickup_p50_ms", Bound::AtMost(1.0)),
    ("pickup_p99_ms", Bound::AtMost(5.0)),
    ("bytes_per_timer", Bound::AtMost(160.0)),
    ("bytes_per_job", Bound::AtMost(350.0)),
    ("idle_commands_per_s", Bound::AtMost(50.0)),
];
/// Goal for dispatchq's throughput relative to that of each other queue.
const PEER_GOAL: Bound = Bound::AtLeast(4.0);

#[derive(Debug, Clone, Args)]
pub struct QueueOptions {
    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,

    /// Rounds of each measurement; the median counts
    #[arg(long, value_name = "N", default_value = "3")]
    pub rounds: NonZeroUsize,

    /// Run a tenth of everything, to check that it works; the figures are not meaningful
    #[arg(long)]
    pub quick: bool,

    /// Benchmark program of another queue, run in every round (see docs/BENCHMARKS.md)
    #[arg(long, value_name = "PROGRAM")]
    pub peer: Vec<PathBuf>,
}

/// Sizes of one round.
#[derive(Debug, Clone, Copy)]
struct RoundSizes {
    /// Jobs that are enqueued and then performed.
    throughput_jobs: u32,
    /// Timers that are not due during the run.
    pending: u32,
    due_per_s: u32,
    lateness_for: Duration,
    pickups: u32,
    herd_jobs: u32,
    memory_jobs: u32,
    idle_for: Duration,
    peer_pending: u32,
    peer_due_per_s: u32,
}

impl RoundSizes {
    const FULL: Self = Self {
        throughput_jobs: 200_000,
        pending: 1_000_000,
        due_per_s: 5_000,
        lateness_for: Duration::from_secs(10),
        pickups: 200,
        herd_jobs: 100_000,
        memory_jobs: 200_000,
        idle_for: Duration::from_secs(10),
        peer_pending: 10_000,
        peer_due_per_s: 500,
    };
    const QUICK: Self = Self {
        throughput_jobs: 20_000,
        pending: 100_000,
        lateness_for: Duration::from_secs(2),
        pickups: 50,
        herd_jobs: 10_000,
        memory_jobs: 20_000,
        idle_for: Duration::from_secs(2),
        peer_pending: 1_000,
        ..Self::FULL
    };
}

/// Values of each figure, one per round.
#[derive(Debug, Default)]
struct Rounds(BTreeMap<String, Vec<f64>>);

impl Rounds {
    fn push(&mut self, name: impl Into<String>, value: f64) {
        self.0.entry(name.into()).or_default().push(value);
    }

    fn push_percentiles(&mut self, name: &str, of: SamplePercentiles) {
        for (part, us) in [("p50", of.p50), ("p99", of.p99), ("max", of.max)] {
            self.push(format!("{name}_{part}_ms"), us_to_ms(us));
        }
    }

    fn values(&self, name: &str) -> &[f64] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    fn spread(&self, name: &str) -> RoundSpread {
        RoundSpread::over_rounds(self.values(name).iter().copied())
    }

    /// Returns the ratio of dispatchq's figure to the other queue's, round by round, because the machine was in the
    /// same state for both. Returns `None` if the other queue has no such figure.
    fn ratio(&self, ours: &str, theirs: &str) -> Option<f64> {
        let pairs = self.values(ours).iter().zip(self.values(theirs));
        let ratios: Vec<f64> = pairs.map(|(ours, theirs)| ours / theirs.max(1.0)).collect();
        (!ratios.is_empty()).then(|| round_figure(RoundSpread::over_rounds(ratios).median))
    }
}

impl Measure for QueueOptions {
    fn prints_json(&self) -> bool {
        self.json
    }

    /// Runs all rounds. Rounds of one kind follow each other, and peers alternate with dispatchq, so that other load on
    /// the machine affects all equally.
    async fn measure(&self) -> anyhow::Result<Figures> {
        let sizes = if self.quick { RoundSizes::QUICK } else { RoundSizes::FULL };
        let (mut rounds, mut peers) = (Rounds::default(), Vec::new());
        for round in 1..=self.rounds.get() {
            self.announce("enqueue and process", round);
            throughput::measure_throughput(sizes.throughput_jobs, &mut rounds).await.context("throughput")?;
            for program in &self.peer {
                let seen = peer::measure_peer_throughput(program, &sizes, &mut rounds).await;
                let (name, details) = seen.context("throughput of a peer")?;
                if round == 1 {
                    peers.push((name, details, None));
                }
            }
        }
        {
            let stage = QueueStage::start().await?;
            lateness::fill_queue(&stage, sizes.pending).await?;
            for round in 1..=self.rounds.get() {
                self.announce("lateness", round);
                lateness::measure_lateness(&stage, &sizes, &mut rounds).await.context("lateness")?;
            }
        }
        for (program, (_, _, lateness)) in self.peer.iter().zip(&mut peers) {
            *lateness = Some(peer::measure_peer_lateness(program, &sizes).await.context("lateness of a peer")?);
        }
        let enqueue_per_s = rounds.spread("enqueue_per_s").min;
        for round in 1..=self.rounds.get() {
            self.announce("pickup, herd and idle cost", round);
            rounds.push_percentiles("pickup", pickup::measure_pickup(sizes.pickups).await.context("pickup")?);
            herd::measure_herd(sizes.herd_jobs, enqueue_per_s, &mut rounds).await.context("herd")?;
            rounds.push("idle_commands_per_s", idle::measure_idle(sizes.idle_for).await.context("idle cost")?);
        }
        memory::measure_memory(sizes.memory_jobs, &mut rounds).await.context("memory")?;
        Ok(self.build_figures(&rounds, &peers))
    }
}

impl QueueOptions {
    fn announce(&self, what: &str, round: usize) {
        let _ = print::print_line(&format!("{what}, round {round} of {}", self.rounds), self.json);
    }

    fn build_figures(&self, rounds: &Rounds, peers: &[(String, Value, Option<PeerLateness>)]) -> Figures {
        let mut figures = Figures::new(json!({ "quick": self.quick }));
        let mut spreads = Map::new();
        for name in rounds.0.keys() {
            let RoundSpread { min, median, max } = rounds.spread(name);
            let [min, median, max] = [min, median, max].map(round_figure);
            if !name.contains(' ') {
                figures.set(name, median);
            }
            spreads.insert(name.clone(), json!({ "min": min, "median": median, "max": max }));
        }
        for (name, bound) in GOALS {
            figures.goal(name, round_figure(rounds.spread(name).median), bound);
        }
        let of_peers = |theirs: &str, ours: &str| -> Map<String, Value> {
            peers
                .iter()
                .map(|(name, ..)| (name.clone(), json!(rounds.ratio(ours, &format!("{name} {theirs}")))))
                .collect()
        };
        if !peers.is_empty() {
            let per_s = |name: &String| json!(round_figure(rounds.spread(&format!("{name} process_per_s")).median));
            figures.set("peers", peers.iter().map(|(name, ..)| (name.clone(), per_s(name))).collect::<Map<_, _>>());
            figures.set("ratios", of_peers("process_per_s", "process_per_s"));
            figures.set("through_ratios", of_peers("through_per_s", "through_per_s"));
            figures.set("with_leases_ratios", of_peers("with_leases_per_s", "through_per_s"));
            let details = peers
                .iter()
                .map(|(name, details, lateness)| (name.clone(), json!({ "about": details, "lateness_ms": lateness })));
            figures.set("peer_details", details.collect::<Map<_, _>>());
        }
        for (name, ..) in peers {
            let ratio = rounds.ratio("process_per_s", &format!("{name} process_per_s")).unwrap_or_default();
            figures.goal(&format!("{name} ratio"), ratio, PEER_GOAL);
        }
        figures.set("rounds", spreads);
        let broken = ["lost", "doubled", "early"].map(|what| (what, rounds.values(what).iter().sum::<f64>()));
        for (what, jobs) in broken {
            figures.set(what, jobs);
        }
        figures.violations = broken
            .iter()
            .filter(|(_, jobs)| *jobs > 0.0)
            .map(|(what, jobs)| format!("{jobs} jobs were {what}"))
            .collect();
        figures
    }
}

/// Rounds a figure to its meaningful digits.
fn round_figure(figure: f64) -> f64 {
    if figure.abs() >= 100.0 { figure.round() } else { (figure * 100.0).round() / 100.0 }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        options: QueueOptions,
    }

    #[test]
    fn lost_jobs_are_violations_and_ratios_per_round() {
        let mut rounds = Rounds::default();
        for (ours, theirs) in [(200.0, 100.0), (300.0, 100.0), (100.0, 100.0)] {
            rounds.push("process_per_s", ours);
            rounds.push("other process_per_s", theirs);
            rounds.push("lost", 0.0);
        }
        assert_eq!(rounds.ratio("process_per_s", "other process_per_s"), Some(2.0));
        assert_eq!(rounds.ratio("process_per_s", "none"), None);
        let options = Cli::parse_from(["bench"]).options;
        assert_eq!(options.build_figures(&rounds, &[]).violations, [""; 0]);
        rounds.push("lost", 2.0);
        assert_eq!(options.build_figures(&rounds, &[]).violations, ["2 jobs were lost"]);
        assert!(Cli::try_parse_from(["bench", "--rounds", "0"]).is_err());
    }
}
