//! Options of `dispatchq replay`.

use std::{num::NonZeroUsize, path::PathBuf};

use anyhow::ensure;
use clap::{Args, ValueEnum};
use serde::Serialize;

/// Default speed of rides from files.
const RIDES_SPEED: f64 = 60.0;
/// Default speed of the built-in sample: its three hours take less than half a minute.
const SAMPLE_SPEED: f64 = 400.0;

/// Default accept rate of own drivers.
const ACCEPT_RATE: f64 = 0.8;

/// Default share of loyal customers in areas.
const LOYAL_RATE: f64 = 0.1;
/// Default maximum of waiting orders in each area.
const MAX_WAITING_ORDERS: u32 = 100;

/// Kind of drivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum SupplyStrategy {
    /// Simulated drivers of your own fleet, who get offers
    Fleet,
    /// Simulated partner that gets bookings
    Partner,
}

/// Behaviour of a full area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionMode {
    /// Requests are refused
    Enforced,
    /// Requests are admitted, and counted as would-be refusals
    Shadow,
}

#[derive(Debug, Clone, Args)]
pub struct ReplayOptions {
    /// Ride files (CSV with the columns of TLC trip records), read in the given order
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "zones")]
    pub rides: Vec<PathBuf>,

    /// Zones of the rides: GeoJSON polygons with a LocationID
    #[arg(long, value_name = "FILE", requires = "rides")]
    pub zones: Option<PathBuf>,

    /// Replay the built-in sample: one evening in an invented town (the default without --rides)
    #[arg(long, conflicts_with_all = ["rides", "zones"])]
    pub sample: bool,

    /// Stop reading after this many orders; skipped rows do not count
    #[arg(long, value_name = "N")]
    pub limit: Option<NonZeroUsize>,

    /// Speed of the replay; divides durations of orders and drivers, but not those of machines [default: 60, the sample
    /// 400]
    #[arg(long, value_name = "X", value_parser = parse_positive)]
    pub speed: Option<f64>,

    /// Replay all rides within one day, each at its time of day; without it the dates are kept, and a month of rides
    /// takes a month divided by the speed
    #[arg(long)]
    pub fold_days: bool,

    /// Kind of drivers
    #[arg(long, value_name = "WHO", default_value = "fleet")]
    pub strategy: SupplyStrategy,

    /// Number of drivers of your own fleet [default: enough that most orders find one]
    #[arg(long, value_name = "N")]
    pub drivers: Option<NonZeroUsize>,

    /// Share of offers that your own drivers accept; half of the others are declined and half are ignored [default:
    /// 0.8]
    #[arg(long, value_name = "P", value_parser = parse_rate)]
    pub accept_rate: Option<f64>,

    /// Share of a partner's bookings that find a driver; with 0.2 one order in twenty finds none within its lifetime
    /// [default: 0.9]
    #[arg(long, value_name = "P", value_parser = parse_rate)]
    pub driver_rate: Option<f64>,

    /// Areas in the format of `dispatchq area import`, or zones in the format of --zones (each becomes an area,
    /// ZONE-<LocationID>); full areas refuse orders [default: no areas]
    #[arg(long, value_name = "FILE")]
    pub areas: Option<PathBuf>,

    /// Maximum number of waiting orders in each of these areas [default: 100]
    #[arg(long, value_name = "N", requires = "areas")]
    pub max_waiting_orders: Option<u32>,

    /// Behaviour of a full area [default: enforced]
    #[arg(long, value_name = "MODE", requires = "areas")]
    pub admission: Option<AdmissionMode>,

    /// Share of orders with ELITE customers, whom full areas admit beyond the threshold [default: 0.1]
    #[arg(long, value_name = "P", value_parser = parse_rate, requires = "areas")]
    pub loyal_rate: Option<f64>,

    /// Check for room before each order (availability-check), and skip orders without room
    #[arg(long, requires = "areas")]
    pub check_first: bool,

    /// Seed of pickups, drivers' locations and decisions, and bookings' fates; the same seed gives the same choices
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Number of worker processes
    #[arg(long, value_name = "N", default_value = "2")]
    pub workers: NonZeroUsize,

    /// Kill a worker process (SIGKILL) every SECS seconds once all have started, and start another
    #[arg(long, value_name = "SECS", value_parser = parse_positive)]
    pub kill_every: Option<f64>,

    /// Leave Redis and Postgres running after the replay, and print their addresses and pids
    #[arg(long)]
    pub keep: bool,

    /// Print one JSON object instead of tables
    #[arg(long)]
    pub json: bool,
}

impl ReplayOptions {
    pub fn is_sample(&self) -> bool {
        self.rides.is_empty()
    }

    /// Checks combinations of options that clap cannot express.
    pub fn check_combinations(&self) -> anyhow::Result<()> {
        let of_fleet = self.drivers.is_some() || self.accept_rate.is_some();
        ensure!(
            self.strategy == SupplyStrategy::Fleet || !of_fleet,
            "--drivers and --accept-rate apply to own drivers; --strategy partner has none"
        );
        ensure!(
            self.strategy == SupplyStrategy::Partner || self.driver_rate.is_none(),
            "--driver-rate applies to a partner's bookings; add --strategy partner, or use --accept-rate for own drivers"
        );
        Ok(())
    }

    pub fn accept_rate(&self) -> f64 {
        self.accept_rate.unwrap_or(ACCEPT_RATE)
    }

    /// Returns the share of loyal customers. Zero without areas, where loyalty has no effect.
    pub fn loyal_rate(&self) -> f64 {
        if self.areas.is_some() { self.loyal_rate.unwrap_or(LOYAL_RATE) } else { 0.0 }
    }

    pub fn max_waiting_orders(&self) -> u32 {
        self.max_waiting_orders.unwrap_or(MAX_WAITING_ORDERS)
    }

    pub fn admission_mode(&self) -> AdmissionMode {
        self.admission.unwrap_or(AdmissionMode::Enforced)
    }

    pub fn replay_speed(&self) -> f64 {
        self.speed.unwrap_or(if self.is_sample() { SAMPLE_SPEED } else { RIDES_SPEED })
    }
}

fn parse_positive(text: &str) -> Result<f64, String> {
    parse_finite(text).filter(|x| *x > 0.0).ok_or_else(|| "expected a number above 0".to_owned())
}

fn parse_rate(text: &str) -> Result<f64, String> {
    parse_finite(text)
        .filter(|x| (0.0..=1.0).contains(x))
        .ok_or_else(|| "expected a number from 0 to 1, such as 0.8".to_owned())
}

fn parse_finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|x: &f64| x.is_finite())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        options: ReplayOptions,
    }

    fn parse(args: &str) -> Result<ReplayOptions, clap::Error> {
        Cli::try_parse_from(["replay"].into_iter().chain(args.split_whitespace())).map(|cli| cli.options)
    }

    #[test]
    fn partner_strategy_refuses_driver_options() {
        assert!(parse("--drivers 5 --accept-rate 1").unwrap().check_combinations().is_ok());
        for bad in ["--strategy partner --drivers 5", "--strategy partner --accept-rate 0.5"] {
            assert!(parse(bad).unwrap().check_combinations().is_err(), "{bad}");
        }
        assert!(parse("--strategy partner --driver-rate 0.2").unwrap().check_combinations().is_ok());
        assert!(parse("--driver-rate 0.2").unwrap().check_combinations().is_err());
    }

    #[test]
    fn area_options_need_areas() {
        for wanting in ["--check-first", "--admission shadow", "--loyal-rate 0.5", "--max-waiting-orders 5"] {
            assert!(parse(wanting).unwrap_err().to_string().contains("--areas"), "{wanting}");
        }
        let options = parse("--areas a.geojson --max-waiting-orders 5 --check-first --admission shadow").unwrap();
        assert_eq!((options.check_first, options.max_waiting_orders()), (true, 5));
        assert_eq!((options.admission_mode(), options.loyal_rate()), (AdmissionMode::Shadow, LOYAL_RATE));
        assert_eq!(parse("").unwrap().loyal_rate(), 0.0);
    }
}
