//! Ride files: TLC trip records, row by row.
//!
//! The data is used as published. A row without the data of an order is skipped and counted by reason; nothing is
//! guessed. Only a file that cannot be read, or that lacks a column, ends the replay.

use std::{collections::BTreeMap, fmt, fs::File, io::Read, path::Path, time::Duration};

use anyhow::Context;
use chrono::{DateTime, NaiveDateTime};
use csv::{ErrorKind, StringRecord};

use super::{
    columns::{RideColumns, open_rides},
    zones::{ZoneId, ZoneMap},
};

/// One ride that can be played as an order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TaxiRide {
    pub(super) zone: ZoneId,
    /// Local time as in the file.
    pub(super) pickup: NaiveDateTime,
    /// Time from pickup to drop-off, if the file has it.
    pub(super) trip: Option<Duration>,
    pub(super) payment_status: &'static str,
    /// Amount in cents.
    pub(super) amount_minor: i64,
}

/// Reason why a row is not an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum SkipReason {
    /// Not UTF-8, or a number of fields that differs from the header.
    MalformedRow,
    /// A required field is empty.
    MissingField,
    BadTime,
    /// The zone has no polygon in the zones file.
    UnknownZone,
    BadPaymentType,
    BadAmount,
    /// A correction, or a ride that cost nothing.
    AmountNotPositive,
}

impl SkipReason {
    pub(super) fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Rides in file order, and skipped rows.
#[derive(Debug, Default)]
pub(super) struct TaxiRides {
    pub(super) rides: Vec<TaxiRide>,
    pub(super) skipped: BTreeMap<&'static str, u64>,
}

impl TaxiRides {
    /// Adds the rides of a file, until all files together have `limit` rides.
    pub(super) fn read_file(&mut self, path: &Path, zones: &ZoneMap, limit: usize) -> anyhow::Result<()> {
        let file = File::open(path).with_context(|| {
            format!(
                "cannot read the ride file {}; give --rides the CSV file of a month of TLC trip records",
                path.display()
            )
        })?;
        self.read_csv(file, &path.display(), zones, limit)
    }

    /// Adds the rides of a CSV text. `name` is only for errors.
    pub(super) fn read_csv(
        &mut self,
        text: impl Read,
        name: &dyn fmt::Display,
        zones: &ZoneMap,
        limit: usize,
    ) -> anyhow::Result<()> {
        let (mut csv, columns) = open_rides(text, name)?;
        let mut row = StringRecord::new();
        while self.rides.len() < limit {
            let ride = match csv.read_record(&mut row) {
                Ok(false) => break,
                Ok(true) => read_row(&row, &columns, zones),
                Err(error) if matches!(error.kind(), ErrorKind::Io(_)) => {
                    return Err(error).with_context(|| format!("cannot read {name} to its end"));
                }
                Err(_) => Err(SkipReason::MalformedRow),
            };
            match ride {
                Ok(ride) => self.rides.push(ride),
                Err(reason) => *self.skipped.entry(reason.as_str()).or_default() += 1,
            }
        }
        Ok(())
    }
}

fn read_row(row: &StringRecord, columns: &RideColumns, zones: &ZoneMap) -> Result<TaxiRide, SkipReason> {
    // Some months end each row with empty fields that the header does not contain.
    if row.len() < columns.count || row.iter().skip(columns.count).any(|extra| !extra.is_empty()) {
        return Err(SkipReason::MalformedRow);
    }
    let field = |column: usize| row.get(column).filter(|text| !text.is_empty()).ok_or(SkipReason::MissingField);
    let (zone, pickup) = (field(columns.zone)?, field(columns.time)?);
    let (payment, amount) = (field(columns.payment)?, field(columns.amount)?);

    let pickup = parse_time(pickup).ok_or(SkipReason::BadTime)?;
    let zone = ZoneId::parse(zone).filter(|zone| zones.contains_zone(*zone)).ok_or(SkipReason::UnknownZone)?;
    let payment_status = payment_status(payment).ok_or(SkipReason::BadPaymentType)?;
    let amount_minor = minor_units(amount).ok_or(SkipReason::BadAmount)?;
    if amount_minor <= 0 {
        return Err(SkipReason::AmountNotPositive);
    }
    // The drop-off is optional: if it is missing or before the pickup, the length of the trip is unknown.
    let dropoff = columns.dropoff.and_then(|column| row.get(column)).and_then(parse_time);
    let trip = dropoff.and_then(|dropoff| (dropoff - pickup).to_std().ok()).filter(|trip| !trip.is_zero());
    Ok(TaxiRide { zone, pickup, trip, payment_status, amount_minor })
}

/// Parses a time in the format of TLC files, of NYC Open Data exports, or in RFC 3339.
pub(super) fn parse_time(text: &str) -> Option<NaiveDateTime> {
    ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M", "%m/%d/%Y %I:%M:%S %p"]
        .iter()
        .find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())
        .or_else(|| DateTime::parse_from_rfc3339(text).ok().map(|time| time.naive_local()))
}

/// Maps the TLC's payment types. A type that is neither paid nor unpaid keeps its own word, and a person must decide.
fn payment_status(text: &str) -> Option<&'static str> {
    // In months with missing values the column contains decimals.
    match text.strip_suffix(".0").unwrap_or(text) {
        "1" => Some("PAID"),
        "2" => Some("UNPAID"),
        "3" => Some("NO_CHARGE"),
        "4" => Some("DISPUTE"),
        "5" => Some("UNKNOWN"),
        "6" => Some("VOIDED"),
        _ => None,
    }
}

/// Converts an amount to cents and rounds it, because files contain amounts such as 20.160000000000004.
#[expect(clippy::cast_possible_truncation, reason = "checked to be far inside the range")]
fn minor_units(text: &str) -> Option<i64> {
    let cents = (text.parse::<f64>().ok()? * 100.0).round();
    (cents.is_finite() && cents.abs() < 1e15).then_some(cents as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "pickup_datetime,dropoff_datetime,pickup_location_id,payment_type,total_amount\n";

    fn zones() -> ZoneMap {
        super::super::zones::fixture()
    }

    fn read(rows: &[u8], limit: usize) -> TaxiRides {
        let mut rides = TaxiRides::default();
        rides.read_csv([HEADER.as_bytes(), rows].concat().as_slice(), &"rides.csv", &zones(), limit).unwrap();
        rides
    }

    fn skipped(row: &str) -> Vec<&'static str> {
        let rides = read(row.as_bytes(), 10);
        assert_eq!(rides.rides, []);
        rides.skipped.into_keys().collect()
    }

    #[test]
    fn ride_has_the_fields_of_an_order() {
        let rides = read(b"2019-01-15 03:36:12,2019-01-15 03:42:19,1,1,9.75\n", 10);
        let [ride] = rides.rides.as_slice() else { panic!("{rides:?}") };
        assert_eq!(ride.pickup.to_string(), "2019-01-15 03:36:12");
        assert_eq!(ride.trip, Some(Duration::from_secs(367)));
        assert_eq!((ride.payment_status, ride.amount_minor), ("PAID", 975));
        assert!(rides.skipped.is_empty());
    }

    #[test]
    fn dirty_rows_are_skipped_by_reason() {
        let good = "2019-01-15 03:36:12,2019-01-15 03:42:19,1,1,9.75";
        assert_eq!(skipped(&good.replace(",1,1,", ",264,1,")), ["unknown_zone"]);
        assert_eq!(skipped(&good.replace(",1,1,", ",downtown,1,")), ["unknown_zone"]);
        assert_eq!(skipped(&good.replace(",1,1,", ",,1,")), ["missing_field"]);
        assert_eq!(skipped(&good.replace(",1,1,", ",1,,")), ["missing_field"]);
        assert_eq!(skipped(&good.replace(",1,1,", ",1,9,")), ["bad_payment_type"]);
        assert_eq!(skipped(&good.replace("2019-01-15 03:36:12", "2019-02-30 03:36:12")), ["bad_time"]);
        assert_eq!(skipped(&good.replace("9.75", "a lot")), ["bad_amount"]);
        assert_eq!(skipped(&good.replace("9.75", "-9.75")), ["amount_not_positive"]);
        assert_eq!(skipped(&good.replace("9.75", "0")), ["amount_not_positive"]);
        assert_eq!(skipped("2019-01-15 03:36:12,1,1"), ["malformed_row"]);
        assert_eq!(skipped(&format!("{good},surprise")), ["malformed_row"]);
    }

    #[test]
    fn times_of_other_publishers_are_read() {
        for text in
            ["2019-01-15 15:36:12", "2019-01-15T15:36:12.000", "01/15/2019 03:36:12 PM", "2019-01-15T15:36:12-05:00"]
        {
            assert_eq!(parse_time(text).map(|t| t.to_string()).as_deref(), Some("2019-01-15 15:36:12"), "{text}");
        }
    }
}
