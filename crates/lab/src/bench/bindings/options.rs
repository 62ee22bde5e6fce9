//! What `dispatchq bench bindings` is told, and what may be expected of it.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

use clap::Args;
use model::binding::{BindingConfig, IntervalFrom, config::MillisRange};

/// How long the provider takes to answer.
pub(super) const PROVIDER_LATENCY: Duration = Duration::from_millis(50);
/// How long a call may take.
const CALL_TIMEOUT_MS: u32 = 1_000;
/// Ids of bindings and servers have so many digits.
const MOST_BINDINGS: i64 = 999_999;
const MOST_SERVERS: i64 = 9_999;

#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
The provider is simulated, answers after 50 ms and judges every call; a call may take 1 s. A binding begins its next cycle 300 \
to 800 ms after the last one has ended, or one each --every. Now and then one is stopped and started again.\n\n\
The bound is what the slots allow, calls / (50 ms + the mean time a claim took in this run), or what the bindings ask for, \
bindings / (mean interval + 50 ms) or bindings / --every, whichever is less.\n\n\
At the end every binding is stopped and the history is checked. It exits with 1 if the provider or the history has found \
something, or a binding did not stop; speed is reported and never judged. Calls that are refused as late are reported: the \
provider may refuse what a process sends that stood still.\n\n\
With --idle the bindings do nothing: their next cycle is half a day away. Their memory and what the processes do meanwhile are \
measured; then one in fifty falls due, 10 ms after the other.\n\n\
Examples:\n  dispatchq bench bindings --kill-every 5 --json > bindings.json\n  \
dispatchq bench bindings --bindings 200 --servers 100 --every 500 --json\n  \
dispatchq bench bindings --idle 50000 --json > idle.json")]
pub struct BindingsOptions {
    /// Bindings that run
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=MOST_BINDINGS))]
    pub bindings: u32,

    /// Servers of the provider, over which the bindings are spread
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=MOST_SERVERS))]
    pub servers: u32,

    /// How long is measured
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,

    /// One cycle is due each so many milliseconds [default: 300 to 800 ms after the last one, at random]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=86_400_000))]
    pub every: Option<u32>,

    /// Kill a worker (SIGKILL) every N seconds, and start another
    #[arg(long, value_name = "N")]
    pub kill_every: Option<NonZeroU32>,

    /// Worker processes
    #[arg(long, value_name = "N", default_value = "4")]
    pub workers: NonZeroUsize,

    /// Calls that may be open, in all
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub calls: u32,

    /// Calls that may be open, at one server
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub calls_per_server: u32,

    /// Measure so many bindings that do nothing, in place of those that run
    #[arg(long, value_name = "N", conflicts_with_all = ["bindings", "every", "kill_every"],
        value_parser = clap::value_parser!(u32).range(1..=MOST_BINDINGS))]
    pub idle: Option<u32>,

    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,
}

impl BindingsOptions {
    pub(super) fn interval_ms(&self) -> MillisRange {
        let usual = BindingConfig::default().interval_ms;
        self.every.map_or(usual, |every| MillisRange { least: every, most: every })
    }

    /// A pace is kept from the begin of a cycle to the begin of the next.
    pub(super) fn interval_from(&self) -> IntervalFrom {
        if self.every.is_some() { IntervalFrom::Begin } else { IntervalFrom::End }
    }

    /// What the bindings are set to, with this interval.
    pub(super) fn binding_config(interval_ms: MillisRange, interval_from: IntervalFrom) -> BindingConfig {
        BindingConfig { interval_ms, interval_from, call_timeout_ms: CALL_TIMEOUT_MS, ..BindingConfig::default() }
    }

    pub(super) fn measured_time(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    pub(super) fn kill_period(&self) -> Option<Duration> {
        self.kill_every.map(|seconds| Duration::from_secs(seconds.get().into()))
    }

    /// Cycles per second that the bindings ask for.
    pub(super) fn demand_per_s(&self) -> f64 {
        let MillisRange { least, most } = self.interval_ms();
        let mean_interval_s = (f64::from(least) + f64::from(most)) / 2000.0;
        let latency_s = PROVIDER_LATENCY.as_secs_f64();
        let cycle_s = match self.interval_from() {
            IntervalFrom::End => mean_interval_s + latency_s,
            IntervalFrom::Begin => mean_interval_s.max(latency_s),
        };
        f64::from(self.bindings) / cycle_s
    }

    /// Cycles per second that are possible where a claim takes so long.
    pub(super) fn bound_per_s(&self, claim_s: f64) -> f64 {
        let slots = self.calls.min(self.servers.saturating_mul(self.calls_per_server));
        let by_slots = f64::from(slots) / (PROVIDER_LATENCY.as_secs_f64() + claim_s);
        by_slots.min(self.demand_per_s())
    }
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
    fn slots_bound_many_bindings_and_their_own_pace_bounds_a_few() {
        let many = parse("").unwrap();
        assert_near(many.demand_per_s(), 1000.0 / 0.6);
        assert_near(many.bound_per_s(0.0), 1000.0);
        assert_near(many.bound_per_s(0.0125), 800.0);
        let few = parse("--bindings 200 --every 500").unwrap();
        assert_near(few.bound_per_s(0.0125), 400.0);
        assert_near(parse("--bindings 10 --every 1").unwrap().demand_per_s(), 200.0);
        assert_near(parse("--servers 10").unwrap().bound_per_s(0.0), 400.0);
    }

    #[test]
    fn every_setting_of_a_binding_is_in_bounds() {
        for args in ["", "--every 1", "--every 86400000"] {
            let options = parse(args).unwrap();
            let config = BindingsOptions::binding_config(options.interval_ms(), options.interval_from());
            assert_eq!(config.check_bounds(), Ok(()));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["--bindings 0", "--every 0", "--kill-every 0", "--workers 0", "--idle 9 --every 5", "--seconds 0"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse("--idle 50000").is_ok());
    }
}
