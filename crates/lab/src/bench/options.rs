//! What `dispatchq bench` is told, and how much of everything there is.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

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

#[derive(Debug, Clone, Args)]
pub struct SoakOptions {
    /// How long jobs are enqueued; the last of them fall due up to --spread seconds later
    #[arg(long, value_name = "N", default_value_t = 30.0, value_parser = parse_minutes)]
    pub minutes: f64,

    /// Jobs enqueued per second
    #[arg(long, value_name = "N", default_value = "5000")]
    pub rate: NonZeroU32,

    /// Jobs are due at random, 1 s to this many seconds after they were enqueued
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub spread: u16,

    /// Print one JSON object; the lines of the minutes go to stderr
    #[arg(long)]
    pub json: bool,
}

/// Up to a week.
fn parse_minutes(text: &str) -> Result<f64, String> {
    const MAX: f64 = 7.0 * 24.0 * 60.0;
    let minutes: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    if minutes > 0.0 && minutes <= MAX { Ok(minutes) } else { Err(format!("expected more than 0, at most {MAX}")) }
}

/// The worker process of a soak; not for people.
#[derive(Debug, Clone, Args)]
pub struct SoakWorkerOptions {
    #[arg(long, value_name = "URL")]
    pub redis: String,

    /// How many timers are told apart at the same time
    #[arg(long, value_name = "N")]
    pub places: u32,

    /// How often to say what was seen
    #[arg(long, value_name = "MS")]
    pub every_ms: u64,
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

    /// Shards of the queue
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub shards: u16,
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
    fn a_soak_has_a_length() {
        assert_eq!(parse_minutes("0.5"), Ok(0.5));
        for bad in ["0", "-1", "long", "NaN", "inf"] {
            assert!(parse_minutes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn three_rounds_of_full_size_unless_told_otherwise() {
        let options = parse("").unwrap();
        assert_eq!((options.rounds.get(), options.round_sizes()), (3, RoundSizes::FULL));
        assert_eq!(parse("--quick").unwrap().round_sizes(), RoundSizes::QUICK);
        assert!(parse("--rounds 0").is_err());
    }
}
