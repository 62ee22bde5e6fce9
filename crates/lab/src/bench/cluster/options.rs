//! What `dispatchq bench cluster` is told.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

use clap::Args;
use workers::ShardCount;

/// Drivers for each order created per second, at a speed of 30. Some ten of them are busy.
const DRIVERS_PER_RATE: u32 = 32;
const USUAL_SPEED: f64 = 30.0;
const FASTEST: f64 = 60.0;

#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Two serve and two work take orders of a simulated partner and of own drivers, on three masters and three replicas. While orders go \
on, and the queue has one shard: a replica takes over by plan (CLUSTER FAILOVER); a master is killed (SIGKILL) and comes back; the \
queue's slot moves to another master key by key; a master is flushed. Then the queue has 4 shards, a master stands still together \
with its replica, a replica takes over; 16 shards, a master is flushed, slots move; and 4 shards again. Where this binary has no \
command shards, the phases with more than one shard are left out, and the report says so.\n\n\
At the end the run waits until every order is final or held and every message is delivered. It exits with 1 if a client was told \
what is not in the tables, an order did not end, an attempt was made twice or ended before its time, the history breaks an \
invariant, or a process ended by itself or not in good order. Speed is reported and never judged.\n\n\
With --plain a worker process performs jobs that do nothing on one private Redis: in each round with each number of shards in turn.\n\n\
Examples:\n  dispatchq bench cluster --seconds 280 --json > cluster.json\n  \
dispatchq bench cluster --plain --shards 1,4,16 --json > shards.json")]
pub struct ClusterOptions {
    /// Orders created per second
    #[arg(long, value_name = "N", default_value = "20", conflicts_with = "plain")]
    pub rate: NonZeroU32,

    /// Seconds for which orders are created, the same share in each phase; longer where the cluster takes longer
    #[arg(long, value_name = "N", default_value = "280", conflicts_with = "plain")]
    pub seconds: NonZeroU32,

    /// Divides the durations of orders, of trips and of the partner
    #[arg(long, value_name = "X", default_value_t = USUAL_SPEED, value_parser = parse_speed, conflicts_with = "plain")]
    pub speed: f64,

    /// Measure the engine alone, on one Redis
    #[arg(long)]
    pub plain: bool,

    /// With --plain: numbers of shards, with commas between them; others are compared with the first
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,4,16", value_parser = parse_shards, requires = "plain")]
    pub shards: Vec<ShardCount>,

    /// With --plain: how often each number of shards has its turn; the median counts
    #[arg(long, value_name = "N", default_value = "5", requires = "plain")]
    pub rounds: NonZeroUsize,

    /// With --plain: jobs performed in each turn
    #[arg(long, value_name = "N", default_value = "400000", requires = "plain")]
    pub jobs: NonZeroU32,

    /// Print one JSON object; the tables go to stderr
    #[arg(long)]
    pub json: bool,
}

impl ClusterOptions {
    /// Returns the shortest time of one of so many phases.
    pub(super) fn phase_length(&self, phases: usize) -> Duration {
        Duration::from_secs(u64::from(self.seconds.get())).div_f64(phases.max(1) as f64)
    }

    /// Returns how many drivers it takes: trips last the longer, the lower the speed.
    pub(super) fn driver_count(&self) -> usize {
        (f64::from(self.rate.get().saturating_mul(DRIVERS_PER_RATE)) * (USUAL_SPEED / self.speed)).ceil() as usize
    }
}

fn parse_speed(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|x| (1.0..=FASTEST).contains(x))
        .ok_or_else(|| format!("expected a number from 1 to {FASTEST}"))
}

fn parse_shards(text: &str) -> Result<ShardCount, String> {
    let count: u16 = text.parse().map_err(|_| "expected a number".to_owned())?;
    ShardCount::new(count).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        options: ClusterOptions,
    }

    fn parse(args: &str) -> Result<ClusterOptions, clap::Error> {
        Cli::try_parse_from(["cluster"].into_iter().chain(args.split_whitespace())).map(|cli| cli.options)
    }

    #[test]
    fn each_phase_has_its_share_and_slower_trips_take_more_drivers() {
        let usual = parse("").unwrap();
        assert_eq!((usual.phase_length(14), usual.driver_count()), (Duration::from_secs(20), 640));
        assert_eq!(parse("--rate 4 --speed 60").unwrap().driver_count(), 64);
        assert_eq!(parse("--rate 4 --speed 15").unwrap().driver_count(), 256);
    }

    #[test]
    fn shards_are_a_list_of_powers_of_two_and_belong_to_one_plain_redis() {
        let counts = |args: &str| parse(args).unwrap().shards.iter().map(|count| count.get()).collect::<Vec<_>>();
        assert_eq!(counts("--plain"), [1, 4, 16]);
        assert_eq!(counts("--plain --shards 1,64"), [1, 64]);
        for bad in [
            "--shards 4",
            "--plain --shards 3",
            "--plain --shards 128",
            "--plain --rate 5",
            "--rounds 2",
            "--jobs 10",
            "--rate 0",
            "--speed 61",
            "--speed NaN",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
