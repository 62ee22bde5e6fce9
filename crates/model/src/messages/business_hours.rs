//! Business hours of the support desk. The time limits of its alerts count only these hours. Pure.
//!
//! Times are wall-clock times of the desk's time zone. If a clock change skips an opening or closing time, the time one
//! hour later counts. If it repeats the time, the first one counts.

use std::{collections::BTreeSet, fmt, str::FromStr, time::Duration};

use chrono::{DateTime, Datelike, NaiveDate, NaiveTime, TimeDelta, TimeZone, Utc, Weekday};
use chrono_tz::Tz;
use garde::{Error, Path, Report, Validate};
use serde::{Deserialize, Serialize};

/// Maximum number of days that are searched. A limit that is not reached by then ends with the last of these days.
const MOST_DAYS: usize = 20 * 366;
const DAY_MINUTES: u16 = 24 * 60;

/// Working days and hours of a desk.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BusinessHours {
    /// Name in the IANA database, such as `Asia/Jakarta`.
    #[serde(with = "zone_name")]
    pub time_zone: Tz,
    /// Days of the week on which the desk works.
    pub weekdays: Vec<Weekday>,
    pub opens: MinuteOfDay,
    pub closes: MinuteOfDay,
    /// Days on which the desk is closed.
    #[serde(default)]
    pub holidays: BTreeSet<NaiveDate>,
}

/// Time of day with minute resolution, from `00:00` to `24:00`, the end of the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct MinuteOfDay(u16);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a time of day; write \"08:00\", at most \"24:00\"")]
pub struct InvalidMinuteOfDay(String);

impl BusinessHours {
    /// Returns the time at which the desk has been open for `span` since `from`.
    pub fn add_open_time(&self, from: DateTime<Utc>, span: Duration) -> DateTime<Utc> {
        let mut left = TimeDelta::from_std(span).unwrap_or(TimeDelta::MAX);
        let mut reached = from;
        let first = from.with_timezone(&self.time_zone).date_naive();
        for day in first.iter_days().take(MOST_DAYS).filter(|day| self.is_working_day(*day)) {
            let begin = self.at_desk(day, self.opens).max(from);
            let end = self.at_desk(day, self.closes);
            let open = (end - begin).max(TimeDelta::zero());
            if left <= open && begin < end {
                return begin + left;
            }
            left -= open;
            reached = reached.max(end);
        }
        reached
    }

    fn is_working_day(&self, day: NaiveDate) -> bool {
        self.weekdays.contains(&day.weekday()) && !self.holidays.contains(&day)
    }

    fn at_desk(&self, day: NaiveDate, time: MinuteOfDay) -> DateTime<Utc> {
        let local = day.and_time(NaiveTime::MIN) + TimeDelta::minutes(i64::from(time.0));
        let find = |local| self.time_zone.from_local_datetime(&local).earliest();
        let at = find(local).or_else(|| find(local + TimeDelta::hours(1)));
        at.map_or_else(|| local.and_utc(), |at| at.with_timezone(&Utc))
    }
}

impl Validate for BusinessHours {
    type Context = ();

    fn validate_into(&self, (): &(), parent: &mut dyn FnMut() -> Path, report: &mut Report) {
        if self.weekdays.is_empty() {
            report.append(parent().join("weekdays"), Error::new("is empty: the desk would never open"));
        }
        if self.opens >= self.closes {
            report.append(parent().join("closes"), Error::new(format!("must be later than opens, {}", self.opens)));
        }
    }
}

impl FromStr for MinuteOfDay {
    type Err = InvalidMinuteOfDay;

    fn from_str(text: &str) -> Result<Self, InvalidMinuteOfDay> {
        let two_digits = |part: &str| {
            let fits = part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
            fits.then(|| part.parse::<u16>().ok()).flatten()
        };
        let minutes = text.split_once(':').and_then(|(hour, minute)| {
            let (hour, minute) = (two_digits(hour)?, two_digits(minute)?);
            (minute < 60).then_some(hour * 60 + minute)
        });
        let minutes = minutes.filter(|minutes| *minutes <= DAY_MINUTES);
        minutes.map(Self).ok_or_else(|| InvalidMinuteOfDay(text.to_owned()))
    }
}

impl TryFrom<String> for MinuteOfDay {
    type Error = InvalidMinuteOfDay;

    fn try_from(text: String) -> Result<Self, InvalidMinuteOfDay> {
        text.parse()
    }
}

impl From<MinuteOfDay> for String {
    fn from(time: MinuteOfDay) -> Self {
        time.to_string()
    }
}

impl fmt::Display for MinuteOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// Serde functions for a time zone as its name.
mod zone_name {
    use chrono_tz::Tz;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Tz, D::Error> {
        let name = String::deserialize(d)?;
        name.parse()
            .map_err(|_| D::Error::custom(format!("'{name}' is not a time zone; write \"Asia/Jakarta\" or \"UTC\"")))
    }

    pub(super) fn serialize<S: Serializer>(zone: &Tz, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(zone.name())
    }
}
