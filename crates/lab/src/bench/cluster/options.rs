//! What `dispatchq bench cluster` is told.

use std::{num::NonZeroU32, time::Duration};

use clap::Args;

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
Example:\n  dispatchq bench cluster --seconds 280 --json > cluster.json")]
pub struct ClusterOptions {
    /// Orders created per second
    #[arg(long, value_name = "N", default_value = "20")]
    pub rate: NonZeroU32,

    /// Seconds for which orders are created, the same share in each phase; longer where the cluster takes longer
    #[arg(long, value_name = "N", default_value = "280")]
    pub seconds: NonZeroU32,

    /// Divides the durations of orders, of trips and of the partner
    #[arg(long, value_name = "X", default_value_t = USUAL_SPEED, value_parser = parse_speed)]
    pub speed: f64,

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
    fn bad_rates_and_speeds_are_refused() {
        for bad in ["--rate 0", "--speed 61", "--speed NaN"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
