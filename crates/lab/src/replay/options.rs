//! What `dispatchq replay` is told.

use std::{num::NonZeroUsize, path::PathBuf};

use anyhow::ensure;
use clap::{Args, ValueEnum};
use serde::Serialize;

/// Speed of rides from files.
const RIDES_SPEED: f64 = 60.0;
/// Speed of the built-in sample: its three hours in less than half a minute.
const SAMPLE_SPEED: f64 = 400.0;

/// Of own drivers.
const ACCEPT_RATE: f64 = 0.8;

/// Of orders in areas.
const LOYAL_RATE: f64 = 0.1;
/// Orders that may wait in each area.
const MAX_WAITING_ORDERS: u32 = 100;

/// Who drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum SupplyStrategy {
    /// Simulated drivers of our own, who are offered the rides
    Fleet,
    /// A simulated partner, with whom the rides are booked
    Partner,
}

/// What an area does that is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionMode {
    /// It refuses requests
    Enforced,
    /// It refuses none; what it would have refused is counted
    Shadow,
}

#[derive(Debug, Clone, Args)]
pub struct ReplayOptions {
    /// Ride files (CSV with the columns of TLC trip records); they are read in this order
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "zones")]
    pub rides: Vec<PathBuf>,

    /// The zones the rides name: GeoJSON polygons with a LocationID
    #[arg(long, value_name = "FILE", requires = "rides")]
    pub zones: Option<PathBuf>,

    /// Replay the built-in sample: one evening in an invented town (the default when there is no --rides)
    #[arg(long, conflicts_with_all = ["rides", "zones"])]
    pub sample: bool,

    /// Stop reading after this many orders; rows that are skipped do not count
    #[arg(long, value_name = "N")]
    pub limit: Option<NonZeroUsize>,

    /// How much faster than life; divides the order's own durations and the drivers' times, never the machine's
    /// [default: 60, the sample 400]
    #[arg(long, value_name = "X", value_parser = parse_positive)]
    pub speed: Option<f64>,

    /// Play all rides on one day, each at its time of day; without it the dates are kept, and a month takes a month
    /// divided by the speed
    #[arg(long)]
    pub fold_days: bool,

    /// Who drives
    #[arg(long, value_name = "WHO", default_value = "fleet")]
    pub strategy: SupplyStrategy,

    /// Simulated drivers, of a fleet [default: enough that most orders find one]
    #[arg(long, value_name = "N")]
    pub drivers: Option<NonZeroUsize>,

    /// Part of the offers that a fleet's drivers accept; of the others half are declined and half ignored [default: 0.8]
    #[arg(long, value_name = "P", value_parser = parse_rate)]
    pub accept_rate: Option<f64>,

    /// Part of the bookings that find a driver at a partner; with 0.2 one order in twenty finds none within its lifetime
    /// [default: 0.9]
    #[arg(long, value_name = "P", value_parser = parse_rate)]
    pub driver_rate: Option<f64>,

    /// Areas as `dispatchq area import` takes them, or zones as --zones does (each is an area, ZONE-<LocationID>), which refuse
    /// orders while they are full; without it none is refused
    #[arg(long, value_name = "FILE")]
    pub areas: Option<PathBuf>,

    /// Orders that may wait in each of these areas [default: 100]
    #[arg(long, value_name = "N", requires = "areas")]
    pub max_waiting_orders: Option<u32>,

    /// What an area does that is full [default: enforced]
    #[arg(long, value_name = "MODE", requires = "areas")]
    pub admission: Option<AdmissionMode>,

    /// Part of the orders whose customers are ELITE: full areas have room for them beyond the threshold [default: 0.1]
    #[arg(long, value_name = "P", value_parser = parse_rate, requires = "areas")]
    pub loyal_rate: Option<f64>,

    /// Ask whether there is room before each order (availability-check), and give it up when there is none
    #[arg(long, requires = "areas")]
    pub check_first: bool,

    /// Decides pickup points, drivers' places and choices, bookings' fates: the same seed, the same choices
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// Worker processes
    #[arg(long, value_name = "N", default_value = "2")]
    pub workers: NonZeroUsize,

    /// Kill one worker process (SIGKILL) every so many seconds, if all have started, and start another
    #[arg(long, value_name = "SECS", value_parser = parse_positive)]
    pub kill_every: Option<f64>,

    /// Leave Redis and Postgres running afterwards, and print their addresses and pids
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

    /// What no single option can say.
    pub fn check_combinations(&self) -> anyhow::Result<()> {
        let of_fleet = self.drivers.is_some() || self.accept_rate.is_some();
        ensure!(
            self.strategy == SupplyStrategy::Fleet || !of_fleet,
            "--drivers and --accept-rate are about drivers of our own; with --strategy partner there are none"
        );
        ensure!(
            self.strategy == SupplyStrategy::Partner || self.driver_rate.is_none(),
            "--driver-rate is about a partner's bookings; give --strategy partner, or --accept-rate for own drivers"
        );
        Ok(())
    }

    pub fn accept_rate(&self) -> f64 {
        self.accept_rate.unwrap_or(ACCEPT_RATE)
    }

    /// Of orders where areas may be full; elsewhere loyalty says nothing.
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
    fn a_partner_has_no_drivers_of_ours() {
        assert!(parse("--drivers 5 --accept-rate 1").unwrap().check_combinations().is_ok());
        for bad in ["--strategy partner --drivers 5", "--strategy partner --accept-rate 0.5"] {
            assert!(parse(bad).unwrap().check_combinations().is_err(), "{bad}");
        }
        assert!(parse("--strategy partner --driver-rate 0.2").unwrap().check_combinations().is_ok());
        assert!(parse("--driver-rate 0.2").unwrap().check_combinations().is_err());
    }

    #[test]
    fn what_is_about_areas_needs_areas() {
        for wanting in ["--check-first", "--admission shadow", "--loyal-rate 0.5", "--max-waiting-orders 5"] {
            assert!(parse(wanting).unwrap_err().to_string().contains("--areas"), "{wanting}");
        }
        let options = parse("--areas a.geojson --max-waiting-orders 5 --check-first --admission shadow").unwrap();
        assert_eq!((options.check_first, options.max_waiting_orders()), (true, 5));
        assert_eq!((options.admission_mode(), options.loyal_rate()), (AdmissionMode::Shadow, LOYAL_RATE));
        assert_eq!(parse("").unwrap().loyal_rate(), 0.0);
    }
}
