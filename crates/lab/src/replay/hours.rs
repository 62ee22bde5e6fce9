//! A ride file as hours of one place: how many found a driver. Nothing is known of those that did not, nor of how many waited.

use std::{collections::BTreeMap, fs::File, io::Read, path::Path};

use anyhow::{Context, ensure};
use chrono::{Datelike, NaiveDate, TimeDelta, Timelike};
use csv::{ErrorKind, StringRecord};
use dispatch::admission::advise::ObservedHour;

use super::{columns::RideColumns, rides::parse_time};

/// Reads the hours between the first and the last full day of a ride file, in its local time. All zones are one place.
pub fn observe_rides(path: &Path) -> anyhow::Result<Vec<ObservedHour>> {
    let file = File::open(path).with_context(|| format!("cannot read the ride file {}", path.display()))?;
    let hours = observe_csv(file).with_context(|| format!("{} holds no rides to learn from", path.display()))?;
    ensure!(!hours.is_empty(), "{} holds no rides to learn from", path.display());
    Ok(hours)
}

fn observe_csv(text: impl Read) -> anyhow::Result<Vec<ObservedHour>> {
    let mut csv = csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(text);
    let columns = RideColumns::find_in_header(csv.headers()?, &"the file")?;
    let mut found: BTreeMap<NaiveDate, [u64; 24]> = BTreeMap::new();
    let mut row = StringRecord::new();
    loop {
        match csv.read_record(&mut row) {
            Ok(false) => break,
            Ok(true) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Io(_)) => return Err(error.into()),
            Err(_) => continue,
        }
        // A row that cannot be read says of no hour that a driver was found in it.
        let Some(pickup) = row.get(columns.time).and_then(parse_time) else { continue };
        found.entry(pickup.date()).or_insert([0; 24])[pickup.hour() as usize] += 1;
    }
    // A month's file has some rides of other years; its own month has most of them.
    let Some((mut day, last)) = busiest_month(&found) else { return Ok(Vec::new()) };
    let mut hours = Vec::new();
    while day <= last {
        let counts = found.get(&day).copied().unwrap_or([0; 24]);
        for (hour, count) in (0..24).zip(counts) {
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
    Ok(hours)
}

/// The first and the last day with rides of the month that has most of them.
fn busiest_month(found: &BTreeMap<NaiveDate, [u64; 24]>) -> Option<(NaiveDate, NaiveDate)> {
    let mut rides: BTreeMap<(i32, u32), u64> = BTreeMap::new();
    for (day, counts) in found {
        *rides.entry((day.year(), day.month())).or_default() += counts.iter().sum::<u64>();
    }
    let (month, _) = rides.into_iter().max_by_key(|(_, count)| *count)?;
    let mut days = found.keys().filter(|day| (day.year(), day.month()) == month);
    let first = *days.next()?;
    Some((first, *days.next_back().unwrap_or(&first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "pickup_datetime,pickup_location_id,payment_type,total_amount\n";

    #[test]
    fn rides_become_the_hours_of_their_month_and_odd_rows_are_left_out() {
        let rows = "2019-01-01 07:10:00,1,1,5\n2019-01-01 07:50:00,1,1,5\n2019-01-03 23:59:59,1,1,5\nlong ago,1,1,5\n\
                    2008-12-31 10:00:00,1,1,5\n";
        let hours = observe_csv(format!("{HEADER}{rows}").as_bytes()).unwrap();
        assert_eq!(hours.len(), 3 * 24);
        let with_rides: Vec<_> = hours
            .iter()
            .enumerate()
            .filter(|(_, hour)| hour.found_driver > 0)
            .map(|(n, hour)| (n, hour.found_driver))
            .collect();
        assert_eq!(with_rides, [(7, 2), (71, 1)]);
        assert!(observe_csv("a,b\n".as_bytes()).is_err());
        assert_eq!(observe_csv(HEADER.as_bytes()).unwrap(), []);
    }
}
