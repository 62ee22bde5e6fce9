//! A ride file as the history of one place: the number of rides per hour, and the times of requests. It contains
//! neither requests without a driver nor the number of waiting requests.

use std::{
    collections::{BTreeMap, HashSet},
    fs::File,
    io::Read,
    path::Path,
};

use anyhow::{Context, ensure};
use chrono::{Datelike, NaiveDate, NaiveDateTime, TimeDelta, Timelike};
use csv::{ErrorKind, StringRecord};

use super::{
    columns::open_rides,
    rides::parse_time,
    zones::{ZoneId, ZoneMap},
};
use model::{admission::advise::ObservedHour, ids::LatLng};

/// History of one place in a ride file, in its local time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RideHistory {
    /// Hours from the first to the last day with rides.
    pub hours: Vec<ObservedHour>,
    /// Start times of rides, earliest first.
    pub requests: Vec<NaiveDateTime>,
}

/// Zones that form one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RideZones(HashSet<ZoneId>);

impl RideZones {
    /// Reads a file of zones, and keeps those with a point within the place.
    pub fn read_file(path: &Path, is_within: impl Fn(LatLng) -> bool) -> anyhow::Result<Self> {
        let zones = ZoneMap::read_file(path)?;
        let within = zones.inner_places().filter(|(_, place)| is_within(*place)).map(|(id, _)| id).collect();
        Ok(Self(within))
    }
}

/// Reads the history of these zones. Without `zones`, all zones are one place.
pub fn read_history(path: &Path, zones: Option<&RideZones>) -> anyhow::Result<RideHistory> {
    let file = File::open(path).with_context(|| format!("cannot read the ride file {}", path.display()))?;
    let history = read_csv(file, zones).with_context(|| format!("{} contains no usable rides", path.display()))?;
    ensure!(!history.requests.is_empty(), "{} contains no usable rides of this place", path.display());
    Ok(history)
}

fn read_csv(text: impl Read, zones: Option<&RideZones>) -> anyhow::Result<RideHistory> {
    let (mut csv, columns) = open_rides(text, &"the file")?;
    // Rides of all zones by day, and requests of this place.
    let mut days: BTreeMap<NaiveDate, u64> = BTreeMap::new();
    let mut requests: Vec<NaiveDateTime> = Vec::new();
    let mut row = StringRecord::new();
    loop {
        match csv.read_record(&mut row) {
            Ok(false) => break,
            Ok(true) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Io(_)) => return Err(error.into()),
            Err(_) => continue,
        }
        // A row that cannot be read has no time, so it belongs to no hour.
        let Some(pickup) = row.get(columns.time).and_then(parse_time) else { continue };
        *days.entry(pickup.date()).or_default() += 1;
        let zone = row.get(columns.zone).and_then(ZoneId::parse);
        if zones.is_none_or(|zones| zone.is_some_and(|zone| zones.0.contains(&zone))) {
            requests.push(pickup);
        }
    }
    // A month's file has a few rides of other years, so only its busiest month is used.
    let Some((first, last)) = busiest_month(&days) else {
        return Ok(RideHistory { hours: Vec::new(), requests: Vec::new() });
    };
    requests.retain(|at| (first..=last).contains(&at.date()));
    requests.sort_unstable();
    Ok(RideHistory { hours: count_hours(first, last, &requests), requests })
}

fn count_hours(first: NaiveDate, last: NaiveDate, requests: &[NaiveDateTime]) -> Vec<ObservedHour> {
    let mut found: BTreeMap<(NaiveDate, u32), u64> = BTreeMap::new();
    for at in requests {
        *found.entry((at.date(), at.hour())).or_default() += 1;
    }
    let mut hours = Vec::new();
    let mut day = first;
    while day <= last {
        for hour in 0..24 {
            let count = found.get(&(day, hour)).copied().unwrap_or(0);
            hours.push(ObservedHour {
                day: day.weekday().into(),
                hour,
                created: count,
                found_driver: count,
                peak_waiting: None,
            });
        }
        day += TimeDelta::days(1);
    }
    hours
}

/// Returns the first and last day with rides of the busiest month.
fn busiest_month(days: &BTreeMap<NaiveDate, u64>) -> Option<(NaiveDate, NaiveDate)> {
    let mut rides: BTreeMap<(i32, u32), u64> = BTreeMap::new();
    for (day, count) in days {
        *rides.entry((day.year(), day.month())).or_default() += count;
    }
    let (month, _) = rides.into_iter().max_by_key(|(_, count)| *count)?;
    let mut of_month = days.keys().filter(|day| (day.year(), day.month()) == month);
    let first = *of_month.next()?;
    Some((first, *of_month.next_back().unwrap_or(&first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "pickup_datetime,pickup_location_id,payment_type,total_amount\n";

    const ROWS: &str = "2019-01-01 07:50:00,1,1,5\n2019-01-01 07:10:00,2,1,5\n2019-01-03 23:59:59,1,1,5\nlong ago,1,1,5\n\
                        2008-12-31 10:00:00,1,1,5\n";

    fn with_rides(zones: Option<&RideZones>) -> Vec<(usize, u64)> {
        let history = read_csv(format!("{HEADER}{ROWS}").as_bytes(), zones).unwrap();
        assert_eq!(history.hours.len(), 3 * 24);
        assert!(history.requests.is_sorted());
        let hours = history.hours.iter().enumerate().filter(|(_, hour)| hour.found_driver > 0);
        hours.map(|(n, hour)| (n, hour.found_driver)).collect()
    }

    #[test]
    fn rides_are_counted_by_hour_of_month() {
        assert_eq!(with_rides(None), [(7, 2), (71, 1)]);
        assert!(read_csv("a,b\n".as_bytes(), None).is_err());
        assert_eq!(read_csv(HEADER.as_bytes(), None).unwrap().requests, []);
    }
}
