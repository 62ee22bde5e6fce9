//! `dispatchq bench orders`: orders at a steady rate of wall time, served by a simulated partner or by own drivers.
//!
//! The speed divides the durations of orders and partner, so an order's half hour fits into a minute. Work per second is that of real
//! time; only fewer orders are open at once.
//!
//! * `partner`: the scenarios with a partner. `alerts`: how long the job id alerts take to fire, at real speed.
//! * `fleet`: own drivers at real speed. `peer`: another system with the same lives.

mod alerts;
mod fleet;
mod partner;
mod peer;

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use partner_sim::{PartnerKnobs, values::EventRate};
use serde::Serialize;

use super::frame::{Figures, Measure};
use crate::testbed::settings::parse_number;

/// Orders come for this long unless their number is given.
const SECONDS: u32 = 120;
/// Length of `--scenario alerts`. The first lifetime ends after 30 minutes; then the alert on failures needs 10 to 15 minutes.
const ALERTS_LENGTH: Duration = Duration::from_secs(45 * 60);
/// Orders of `--scenario alerts`: one every 3 s.
const ALERTS_ORDERS: u32 = 900;
/// Calls per second that the partner allows, for each order created per second. Without any callback an order is asked for
/// some ten times in its life, and booked.
const CALLS_PER_ORDER: u32 = 20;
/// How long the partner is down, in the order's time.
const OUTAGE: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
The order's time is compressed, the load is not: --speed divides the lifetime (30 min), attempts, polls, the breaker's \
pauses, trips, the partner's delays and its outage. It divides neither --rate nor what belongs to machines: leases, HTTP \
timeouts, repairs. At the defaults orders are created for 2 minutes, which are an hour of theirs; the last of them ends \
within another 2 minutes: 30 min to find a driver and half an hour to ride, divided by 30. With --rate 100 that is 12,000 \
orders in 4 minutes.\n\n\
With --scenario fleet there is no partner and nothing is compressed: the first driver who is asked lets the offer lapse \
after 2 s, the second accepts after 0.2 s, picks up and completes after half a second each. --speed, --seed and \
--partner-limit mean nothing there. A rate is held if jobs are less than 100 ms late at the 99th percentile and the last order \
has ended 10 s after its creation.\n\n\
With --scenario alerts the run lasts at most 45 minutes at real speed, and a Prometheus with the rules of deploy/prometheus watches \
it. --orders (900 unless given) are created evenly over that time; --rate and --speed mean nothing there. The run ends when \
each of the five job id alerts has fired, and reports how long each took after its cause. It exits with 1 if one did not fire.\n\n\
Postgres fsyncs as in production. The run ends at rest: every order final or held for a person, no booking open at the partner, no message or callback \
waiting. Then the history is checked. It exits with 1 if an invariant is violated, the partner's limit was exceeded, or it \
did not come to rest; speed is reported and never judged.")]
pub struct OrdersOptions {
    /// What the partner does, or own drivers
    #[arg(long, value_name = "SCENARIO", default_value = "normal")]
    pub scenario: OrdersScenario,

    /// Orders created per second, of wall time
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,

    /// How much faster than life; divides the durations of orders and partner, never the rate nor the machine's durations
    #[arg(long, value_name = "X", default_value_t = 30.0, value_parser = parse_number(0.1, 1000.0))]
    pub speed: f64,

    /// Orders to create [default: those of 120 s]
    #[arg(long, value_name = "N")]
    pub orders: Option<NonZeroU32>,

    /// Worker processes
    #[arg(long, value_name = "N", default_value = "2")]
    pub workers: NonZeroUsize,

    /// Calls per second that the partner allows, of wall time; more is a failure [default: 20 times the rate]
    #[arg(long, value_name = "N")]
    pub partner_limit: Option<NonZeroU32>,

    /// Decides what happens to each booking: the same seed, the same story
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// With `--scenario fleet`: a folder whose measure.py gives another system the same lives, after dispatchq
    #[arg(long, value_name = "DIR")]
    pub peer: Option<PathBuf>,

    /// Trace this share of the orders, from 0 to 1, and send the spans to a collector of this run [default: no traces]
    #[arg(long, value_name = "RATIO", value_parser = parse_number(0.0, 1.0))]
    pub trace_sampling: Option<f64>,

    /// Watch the run with a Prometheus of its own and the rules of deploy/prometheus: alerts that fired, memory of processes
    #[arg(long)]
    pub prometheus: bool,

    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum OrdersScenario {
    /// 95 % of its callbacks arrive
    Normal,
    /// None arrives: everything by asking
    NoCallback,
    /// Half of the job ids come only after 10 to 15 minutes of the order's time
    Slow,
    /// It is down for 10 minutes of the order's time, then recovers
    Outage,
    /// It calls back never, is slow and forgets job ids, at real speed, until each job id alert has fired
    Alerts,
    /// No partner: own drivers serve each order at its real speed, the second who is asked accepts
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
            // The last share comes after the lifetime of the order.
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
            _ => self.rate.get().saturating_mul(SECONDS),
        };
        self.orders.map_or(default, NonZeroU32::get)
    }

    /// How long it takes to create all orders.
    fn creation_duration(&self) -> Duration {
        match self.scenario {
            OrdersScenario::Alerts => ALERTS_LENGTH,
            _ => Duration::from_secs_f64(f64::from(self.order_count()) / f64::from(self.rate.get())),
        }
    }

    fn partner_limit(&self) -> u32 {
        self.partner_limit.map_or(self.rate.get().saturating_mul(CALLS_PER_ORDER), NonZeroU32::get)
    }

    /// The partner is down from a quarter of the creations on: begin and end, of wall time.
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
        assert_eq!(options.outage_window(), None);
        let (begin, end) = parse("--scenario outage").unwrap().outage_window().unwrap();
        assert_eq!((begin.as_secs(), end.as_secs()), (30, 50));
        for bad in ["--rate 0", "--speed NaN", "--scenario odd", "--workers 0", "--trace-sampling 1.1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn scenarios_are_those_of_the_design() {
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
