//! `dispatchq bench orders`: orders at a steady rate of real time, served by a simulated partner or by own drivers.
//!
//! The speed divides the durations of orders and partner, so that an order's half hour takes a minute. The work per
//! second is the same as at real speed; only fewer orders are open at once.
//!
//! * `partner`: the scenarios with a partner. `alerts`: time until the job id alerts fire, at real speed.
//! * `fleet`: own drivers at real speed. `recovery`: time until jobs are on time again. `peer`: another system with the
//!   same orders. `work`: what an order costs in Postgres.

mod alerts;
mod fleet;
mod partner;
mod peer;
mod proof;
mod recovery;
mod work;

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use clap::Args;
use model::{bounds::MS, duration::parse_within};
use partner_sim::{PartnerKnobs, values::EventRate};
use serde::Serialize;

use super::frame::{Figures, Measure};
use crate::testbed::settings::parse_number;

/// Default length of the creation of orders.
const SECONDS: u32 = 120;
/// Maximum length of `--scenario alerts`. The first lifetime ends after 30 minutes; then the alert on failures needs 10
/// to 15 minutes.
const ALERTS_LENGTH: Duration = Duration::from_secs(45 * 60);
/// Number of orders of `--scenario alerts`: one every 3 s.
const ALERTS_ORDERS: u32 = 900;
/// Calls per second that the partner allows, per order created per second. Without callbacks an order needs about ten
/// polls and a booking.
const CALLS_PER_ORDER: u32 = 20;
/// Maximum of `--stop-postgres`: statements time out after a longer stop.
const STOPPED_FOR_MAX: Duration = Duration::from_secs(5);
/// Length of the partner's outage, in simulated time.
const OUTAGE: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Orders are accelerated; the load is not. --speed divides the lifetime (30 min), attempts, polls, the breaker's pauses, trips, and the \
partner's delays and outage. It does not divide --rate or durations of machines: leases, HTTP timeouts, repairs. With the defaults, \
orders are created for 2 minutes of real time, which is an hour of simulated time. The last order ends within another 2 minutes: 30 \
min to find a driver and half an hour to ride, divided by 30. With --rate 100 that is 12,000 orders in 4 minutes.\n\n\
With --scenario fleet there is no partner and nothing is accelerated. The first driver lets the offer expire after 2 s. The second \
accepts after 0.2 s, picks up half a second later, and completes after another half second. --speed, --seed and --partner-limit have no effect. A rate \
is sustained if jobs are less than 100 ms late at the 99th percentile and the last order ends within 10 s of its creation.\n\n\
Orders that an overloaded API refuses (503) are not repeated. `refused` is their number. With --scenario fleet, `lateness_under_load_ms` \
is the lateness of the jobs until the last creation. `recovery_ms.after_load` is the time from the last creation until the oldest due job is \
less than 100 ms late and stays so for a second; `recovery_ms.after_stop` is the same from the end of --stop-postgres. For an overload of 30 s, use \
--rate with 1.2 times the rate that is sustained, and --seconds 30. `proof` has the processor time of the continuous proof without \
that of Postgres, and its lag, read once a second.\n\n\
With --scenario alerts the run lasts at most 45 minutes at real speed, and a Prometheus with the rules of deploy/prometheus scrapes \
it. --orders (default: 900) are created evenly over that time; --rate and --speed have no effect. The run ends when each of the five \
job id alerts has fired, and reports the time from each cause to its alert. It exits with 1 if an alert did not fire.\n\n\
Postgres fsyncs as in production. The run ends when every order is final or held for a person, no booking is open at the partner, \
and no message or callback waits. Then the history is checked. The command exits with 1 if an invariant is violated, the partner's \
limit was exceeded, or the run did not reach this state. Speed is reported but does not affect the exit code.")]
pub struct OrdersOptions {
    /// Behaviour of the partner, or drivers of your own fleet
    #[arg(long, value_name = "SCENARIO", default_value = "normal")]
    pub scenario: OrdersScenario,

    /// Number of orders created per second of real time
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,

    /// Speed of orders and partner; divides their durations, but not the rate or durations of machines
    #[arg(long, value_name = "X", default_value_t = 30.0, value_parser = parse_number(0.1, 1000.0))]
    pub speed: f64,

    /// Number of orders to create [default: those of 120 s]
    #[arg(long, value_name = "N")]
    pub orders: Option<NonZeroU32>,

    /// Create orders for this many seconds, instead of a number of orders
    #[arg(long, value_name = "S", conflicts_with = "orders")]
    pub seconds: Option<NonZeroU32>,

    /// With `--scenario fleet`: stop Postgres (SIGSTOP) for this time, after half of the orders
    #[arg(long, value_name = "DURATION", value_parser = parse_within(MS..=STOPPED_FOR_MAX))]
    pub stop_postgres: Option<Duration>,

    /// With `--scenario fleet`: create orders with addresses, destination, notes, contact, metadata and a label
    #[arg(long)]
    pub with_contents: bool,

    /// Number of worker processes; 0 runs the API and the worker in one process, like `dispatchq run`
    #[arg(long, value_name = "N", default_value = "2")]
    pub workers: usize,

    /// Limit of partner calls per second of real time; exceeding it is a failure [default: 20 times the rate]
    #[arg(long, value_name = "N")]
    pub partner_limit: Option<NonZeroU32>,

    /// Seed of the bookings' fates; the same seed gives the same fates
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// With `--scenario fleet`: directory with a measure.py that runs the same orders on another system, after
    /// dispatchq
    #[arg(long, value_name = "DIR")]
    pub peer: Option<PathBuf>,

    /// Share of orders to trace, from 0 to 1; the spans go to a collector of this run [default: no traces]
    #[arg(long, value_name = "RATIO", value_parser = parse_number(0.0, 1.0))]
    pub trace_sampling: Option<f64>,

    /// Run a Prometheus with the rules of deploy/prometheus, and report alerts that fired and memory of processes
    #[arg(long)]
    pub prometheus: bool,

    /// With `--scenario fleet`: count statements, row versions, index entries and WAL per order; needs the contrib
    /// modules pg_stat_statements and pg_walinspect
    #[arg(long)]
    pub count_work: bool,

    /// With `--scenario fleet`: put a PgBouncer in transaction mode between the processes and Postgres
    #[arg(long)]
    pub pooler: bool,

    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum OrdersScenario {
    /// 95 % of the callbacks arrive
    Normal,
    /// No callbacks arrive; everything is polled
    NoCallback,
    /// Half of the job ids arrive only after 10 to 15 minutes of simulated time
    Slow,
    /// The partner is down for 10 minutes of simulated time, then recovers
    Outage,
    /// The partner never calls back, is slow and loses job ids, at real speed, until each job id alert has fired
    Alerts,
    /// No partner: drivers of your own fleet serve each order at real speed, and the second driver accepts
    Fleet,
}

impl OrdersScenario {
    fn partner_knobs(self) -> PartnerKnobs {
        let knobs = PartnerKnobs::default();
        let silent = PartnerKnobs {
            job_id_callback_rate: EventRate::NEVER,
            callback_rate: EventRate::NEVER,
            ..PartnerKnobs::default()
        };
        match self {
            Self::Normal | Self::Outage | Self::Fleet => knobs,
            Self::NoCallback => silent,
            Self::Slow => {
                PartnerKnobs { job_id_delay: "50% 500ms-2s, 50% 10m-15m".parse().expect("a test parses it"), ..knobs }
            }
            // The last share arrives after the order's lifetime.
            Self::Alerts => PartnerKnobs {
                job_id_delay: "35% 500ms-2s, 35% 10m-14m, 30% 40m-50m".parse().expect("a test parses it"),
                ..silent
            },
        }
    }
}

impl OrdersOptions {
    fn order_count(&self) -> u32 {
        let default = match self.scenario {
            OrdersScenario::Alerts => ALERTS_ORDERS,
            _ => self.rate.get().saturating_mul(self.seconds.map_or(SECONDS, NonZeroU32::get)),
        };
        self.orders.map_or(default, NonZeroU32::get)
    }

    /// Returns the time to create all orders.
    fn creation_duration(&self) -> Duration {
        match self.scenario {
            OrdersScenario::Alerts => ALERTS_LENGTH,
            _ => Duration::from_secs_f64(f64::from(self.order_count()) / f64::from(self.rate.get())),
        }
    }

    fn partner_limit(&self) -> u32 {
        self.partner_limit.map_or(self.rate.get().saturating_mul(CALLS_PER_ORDER), NonZeroU32::get)
    }

    /// Returns the start and end of the outage in real time. It starts after a quarter of the creations.
    fn outage_window(&self) -> Option<(Duration, Duration)> {
        let begin = self.creation_duration() / 4;
        (self.scenario == OrdersScenario::Outage).then(|| (begin, begin + OUTAGE.div_f64(self.speed)))
    }
}

impl Measure for OrdersOptions {
    fn prints_json(&self) -> bool {
        self.json
    }

    async fn measure(&self) -> anyhow::Result<Figures> {
        match self.scenario {
            OrdersScenario::Fleet => fleet::measure_lives(self).await,
            OrdersScenario::Alerts => {
                alerts::measure_alerts(&Self { speed: 1.0, prometheus: true, ..self.clone() }).await
            }
            _ => partner::measure_orders(self).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        options: OrdersOptions,
    }

    fn parse(args: &str) -> Result<OrdersOptions, clap::Error> {
        Cli::try_parse_from(["orders"].into_iter().chain(args.split_whitespace())).map(|cli| cli.options)
    }

    #[test]
    fn default_is_two_minutes_of_orders() {
        let options = parse("").unwrap();
        assert_eq!((options.order_count(), options.partner_limit()), (12_000, 2_000));
        assert_eq!(parse("--rate 30 --orders 60").unwrap().creation_duration(), Duration::from_secs(2));
        let alerts = parse("--scenario alerts").unwrap();
        assert_eq!((alerts.order_count(), alerts.creation_duration()), (900, Duration::from_secs(2_700)));
        assert_eq!(parse("--rate 30 --seconds 5").unwrap().order_count(), 150);
        assert_eq!(options.outage_window(), None);
        let (begin, end) = parse("--scenario outage").unwrap().outage_window().unwrap();
        assert_eq!((begin.as_secs(), end.as_secs()), (30, 50));
        for bad in [
            "--rate 0",
            "--speed NaN",
            "--scenario odd",
            "--workers -1",
            "--trace-sampling 1.1",
            "--seconds 1 --orders 2",
            "--stop-postgres 9s",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn scenarios_match_the_design() {
        let knobs = |scenario: OrdersScenario| {
            let knobs = scenario.partner_knobs();
            (f64::from(knobs.job_id_callback_rate), f64::from(knobs.callback_rate), knobs.job_id_delay.to_string())
        };
        assert_eq!(knobs(OrdersScenario::Normal).0, 0.95);
        assert_eq!(knobs(OrdersScenario::NoCallback).1, 0.0);
        assert_eq!(knobs(OrdersScenario::Slow).2, "50% 500ms-2s, 50% 10m-15m");
        assert_eq!(knobs(OrdersScenario::Alerts).2, "35% 500ms-2s, 35% 10m-14m, 30% 40m-50m");
    }
}
