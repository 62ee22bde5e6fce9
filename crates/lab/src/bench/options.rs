//! What `dispatchq bench` is told, and how much of everything there is.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::Args;

/// Jobs performed at once in each queue of a measured worker.
pub(super) const CONCURRENCY: usize = 1000;

#[derive(Debug, Clone, Args)]
pub struct QueueOptions {
    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,

    /// Rounds of each measurement; the median counts
    #[arg(long, value_name = "N", default_value = "3")]
    pub rounds: NonZeroUsize,

    /// A tenth of everything: to see that it works, not for figures
    #[arg(long)]
    pub quick: bool,

    /// The benchmark program of another queue, to take its turn in every round (see docs/BENCHMARKS.md)
    #[arg(long, value_name = "PROGRAM")]
    pub peer: Vec<PathBuf>,
}

impl QueueOptions {
    pub(super) fn round_sizes(&self) -> RoundSizes {
        if self.quick { RoundSizes::QUICK } else { RoundSizes::FULL }
    }
}

/// The measured worker process; not for people.
#[derive(Debug, Clone, Args)]
pub struct WorkerOptions {
    #[arg(long, value_name = "URL")]
    pub redis: String,

    /// End when this many timers have run and are settled; 0: end with standard input
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub jobs: u32,

    #[arg(long, value_name = "N", default_value_t = CONCURRENCY)]
    pub concurrency: usize,

    /// Record metrics for Prometheus
    #[arg(long)]
    pub metrics: bool,
}

/// How much of everything there is in one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RoundSizes {
    /// Jobs enqueued, then performed.
    pub(super) throughput_jobs: u32,
    /// Timers that lie in the queue and do not fall due.
    pub(super) pending: u32,
    pub(super) due_per_s: u32,
    pub(super) lateness_for: Duration,
    pub(super) pickups: u32,
    pub(super) herd_jobs: u32,
    pub(super) memory_jobs: u32,
    pub(super) idle_for: Duration,
    pub(super) peer_pending: u32,
    pub(super) peer_due_per_s: u32,
}

impl RoundSizes {
    pub(super) const FULL: Self = Self {
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
    pub(super) const QUICK: Self = Self {
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        options: QueueOptions,
    }

    fn parse(args: &str) -> Result<QueueOptions, clap::Error> {
        Cli::try_parse_from(["bench"].into_iter().chain(args.split_whitespace())).map(|cli| cli.options)
    }

    #[test]
    fn three_rounds_of_full_size_unless_told_otherwise() {
        let options = parse("").unwrap();
        assert_eq!((options.rounds.get(), options.round_sizes()), (3, RoundSizes::FULL));
        assert_eq!(parse("--quick").unwrap().round_sizes(), RoundSizes::QUICK);
        assert!(parse("--rounds 0").is_err());
    }
}
