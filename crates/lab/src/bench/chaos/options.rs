//! What `dispatchq bench chaos` is told.

use std::{iter::once, num::NonZeroU32};

use clap::{
    Args, ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

use super::fault::ChaosFault;

/// Shorter runs leave no time between two faults in which lateness could be judged.
const JUDGED_FROM_MINUTES: f64 = 2.0;
const USUAL_SPEED: f64 = 60.0;
/// Drivers for each order created per second, at the usual speed. Some five of them are busy. Orders that waited out a fault must find
/// drivers among the others: if there were too few, they would search again every 250 ms, a load that comes from the speed
/// and not from the fault.
const DRIVERS_PER_RATE: u32 = 16;

#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
One fault is made at a time, in an order that the seed decides; a time to recover follows each. --speed divides the durations \
of orders: at 60 an order's half hour is 30 s, and an offer stands for 2 s, in which a slow machine does not get a driver's \
answer through. Leases, HTTP timeouts and repairs keep their length.\n\n\
After the last fault the run waits until every order is final or held and every message is delivered. Then it compares what \
clients were told with the tables, checks the history, and compares what receivers got with what counts as delivered. It \
exits with 1 if anything differs. A release build that runs for 2 minutes or more also fails if lateness p99 over any 5 s \
window is 100 ms or more from 10 s after a fault on, or if timers are missing then.\n\n\
Example:\n  dispatchq bench chaos --minutes 8 --seed 7 --json > chaos.json")]
pub struct ChaosOptions {
    /// How long orders are created and faults are made
    #[arg(long, value_name = "N", default_value_t = 5.0, value_parser = parse_minutes)]
    pub minutes: f64,

    /// Orders created per second
    #[arg(long, value_name = "N", default_value = "20")]
    pub rate: NonZeroU32,

    /// Producers, each of which creates its next order once it was told of the last: fewer orders than --rate on a machine that
    /// answers slowly [default: as many as it takes]
    #[arg(long, value_name = "N")]
    pub producers: Option<NonZeroU32>,

    /// Divides the durations of orders, of trips and of the partner
    #[arg(long, value_name = "X", default_value_t = USUAL_SPEED, value_parser = parse_speed)]
    pub speed: f64,

    /// Decides which faults are made when, and what clients want
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Faults to be made, with commas between them
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all", value_parser = fault_choice_parser())]
    pub faults: Vec<FaultChoice>,

    /// Put a PgBouncer in transaction mode between the processes and Postgres
    #[arg(long)]
    pub pooler: bool,

    /// Print one JSON object; the tables go to stderr
    #[arg(long)]
    pub json: bool,
}

/// One word of the list of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultChoice {
    All,
    One(ChaosFault),
}

fn fault_choice_parser() -> impl TypedValueParser<Value = FaultChoice> {
    let all = PossibleValue::new("all").help("Each of them, round after round");
    let names = ChaosFault::ALL.iter().filter_map(ValueEnum::to_possible_value);
    PossibleValuesParser::new(once(all).chain(names))
        .map(|name| ChaosFault::from_str(&name, false).map_or(FaultChoice::All, FaultChoice::One))
}

impl ChaosOptions {
    /// Returns the faults of one round.
    pub(super) fn faults_of_round(&self) -> Vec<ChaosFault> {
        let of = |choice: &FaultChoice| match *choice {
            FaultChoice::All => ChaosFault::ALL.to_vec(),
            FaultChoice::One(fault) => vec![fault],
        };
        self.faults.iter().flat_map(of).collect()
    }

    /// Returns how many drivers it takes: trips last the longer, the lower the speed.
    pub(super) fn driver_count(&self) -> usize {
        (f64::from(self.rate.get() * DRIVERS_PER_RATE) * (USUAL_SPEED / self.speed)).ceil() as usize
    }

    /// Returns whether each fault is followed by time enough to judge how soon all is as before.
    pub(super) fn leaves_time_to_recover(&self) -> bool {
        self.minutes >= JUDGED_FROM_MINUTES
    }
}

fn parse_minutes(text: &str) -> Result<f64, String> {
    const MOST: f64 = 24.0 * 60.0;
    text.parse()
        .ok()
        .filter(|n| (0.2..=MOST).contains(n))
        .ok_or_else(|| format!("expected a number from 0.2 to {MOST}"))
}

fn parse_speed(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|x| (1.0..=USUAL_SPEED).contains(x))
        .ok_or_else(|| format!("expected a number from 1 to {USUAL_SPEED}"))
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
    fn faults_are_a_list_and_all_of_them_unless_told_otherwise() {
        let parse = |args: &str| Cli::try_parse_from(["chaos"].into_iter().chain(args.split_whitespace()));
        assert_eq!(parse("").unwrap().options.faults_of_round(), ChaosFault::ALL);
        assert_eq!(parse("--faults all").unwrap().options.faults_of_round(), ChaosFault::ALL);
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
