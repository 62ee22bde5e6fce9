//! Thresholds by weekday and time of day, in the area's own time zone. Source: the requirement on server busy, 9.4.
//! Pure.
//!
//! An instant has exactly one wall-clock time in a time zone, so at most one entry applies to it. Wall-clock times that
//! a clock change skips never occur. For times that it repeats, an entry applies both times.

use std::{fmt, str::FromStr};

use chrono::{DateTime, Datelike, Timelike, Utc, Weekday};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use crate::schedule;

const DAY_MINUTES: u32 = 24 * 60;
const WEEK_MINUTES: u32 = 7 * DAY_MINUTES;
/// Maximum number of entries in a schedule: one for each hour of the week.
const MOST_ENTRIES: usize = 168;
/// Maximum number of waiting orders, as for limits without a schedule.
const LARGEST_THRESHOLD: i64 = 1_000_000;

/// Error for an invalid schedule, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScheduleError(String);

/// A day of the week, as schedules name it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema, strum::IntoStaticStr,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "UPPERCASE")]
pub enum ScheduleDay {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

impl ScheduleDay {
    pub const ALL: [Self; 7] = [Self::Mon, Self::Tue, Self::Wed, Self::Thu, Self::Fri, Self::Sat, Self::Sun];

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    fn index(self) -> u32 {
        self as u32
    }
}

impl FromStr for ScheduleDay {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let found = Self::ALL.into_iter().find(|day| day.as_str().eq_ignore_ascii_case(text));
        found.ok_or_else(|| ScheduleError(format!("'{text}' is not a day; days are MON, TUE, WED, THU, FRI, SAT, SUN")))
    }
}

impl From<Weekday> for ScheduleDay {
    fn from(day: Weekday) -> Self {
        match day {
            Weekday::Mon => Self::Mon,
            Weekday::Tue => Self::Tue,
            Weekday::Wed => Self::Wed,
            Weekday::Thu => Self::Thu,
            Weekday::Fri => Self::Fri,
            Weekday::Sat => Self::Sat,
            Weekday::Sun => Self::Sun,
        }
    }
}

/// Time of day with minute resolution, from `00:00` to `24:00`, the end of the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MinuteOfDay(u32);

impl MinuteOfDay {
    /// Returns the time this many minutes after midnight; `None` after the end of the day.
    pub fn new(minutes: u32) -> Option<Self> {
        (minutes <= DAY_MINUTES).then_some(Self(minutes))
    }
}

impl FromStr for MinuteOfDay {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let two_digits = |part: &str| {
            let fits = part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
            fits.then(|| part.parse::<u32>().ok()).flatten()
        };
        let minutes = text.split_once(':').and_then(|(hour, minute)| {
            let (hour, minute) = (two_digits(hour)?, two_digits(minute)?);
            (minute < 60).then_some(hour * 60 + minute)
        });
        let time = minutes.and_then(Self::new);
        time.ok_or_else(|| ScheduleError(format!("'{text}' is not a time of day such as 07:30, at most 24:00")))
    }
}

impl fmt::Display for MinuteOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

impl TryFrom<String> for MinuteOfDay {
    type Error = ScheduleError;

    fn try_from(text: String) -> Result<Self, ScheduleError> {
        text.parse()
    }
}

impl From<MinuteOfDay> for String {
    fn from(time: MinuteOfDay) -> Self {
        time.to_string()
    }
}

/// Maximum number of waiting orders in a part of the week.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduledThreshold {
    /// Days on which the entry starts. Empty: every day.
    #[serde(default)]
    pub days: Vec<ScheduleDay>,
    /// Start, in the area's time zone.
    #[schema(value_type = String, pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    pub from: MinuteOfDay,
    /// End, exclusive. Before `from`: on the next day.
    #[schema(value_type = String, pattern = "^([01][0-9]:[0-5][0-9]|2[0-3]:[0-5][0-9]|24:00)$")]
    pub to: MinuteOfDay,
    #[schema(minimum = 0, maximum = 1000000)]
    pub max_waiting_orders: i64,
}

impl ScheduledThreshold {
    fn begins_on(&self, day: ScheduleDay) -> bool {
        self.days.is_empty() || self.days.contains(&day)
    }

    /// Returns the start and the length of each stretch, in minutes of the week.
    fn stretches(&self) -> impl Iterator<Item = (u32, u32)> {
        let length = if self.from < self.to { self.to.0 - self.from.0 } else { DAY_MINUTES - self.from.0 + self.to.0 };
        let begins = ScheduleDay::ALL.into_iter().filter(move |day| self.begins_on(*day));
        begins.map(move |day| (day.index() * DAY_MINUTES + self.from.0, length))
    }

    fn holds_at(&self, minute_of_week: u32) -> bool {
        self.stretches().any(|(begin, length)| (minute_of_week + WEEK_MINUTES - begin) % WEEK_MINUTES < length)
    }

    fn find_problem(&self) -> Option<String> {
        if self.from.0 == DAY_MINUTES {
            return Some("from must be before 24:00".to_owned());
        }
        if self.from == self.to {
            return Some(format!("from and to are both {}; the whole day is 00:00 to 24:00", self.from));
        }
        let fits = (0..=LARGEST_THRESHOLD).contains(&self.max_waiting_orders);
        (!fits).then(|| format!("max_waiting_orders must be 0 to {LARGEST_THRESHOLD}"))
    }
}

/// Thresholds by weekday and time of day. Entries do not overlap. Outside all entries, the area's usual threshold
/// applies.
///
/// As text: `MON-FRI 07:00-09:30=60; SAT,SUN 10:00-22:00=80; 22:00-02:00=30`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ThresholdSchedule(Vec<ScheduledThreshold>);

impl ThresholdSchedule {
    /// Creates a schedule. Fails if an entry is invalid or two entries overlap.
    pub fn new(entries: Vec<ScheduledThreshold>) -> Result<Self, ScheduleError> {
        if entries.len() > MOST_ENTRIES {
            return Err(ScheduleError(format!(
                "the schedule has {} entries; at most {MOST_ENTRIES} are allowed",
                entries.len()
            )));
        }
        let mut taken = vec![false; WEEK_MINUTES as usize];
        for entry in &entries {
            if let Some(problem) = entry.find_problem() {
                return Err(ScheduleError(problem));
            }
            for (begin, length) in entry.stretches() {
                for minute in begin..begin + length {
                    if std::mem::replace(&mut taken[(minute % WEEK_MINUTES) as usize], true) {
                        return Err(ScheduleError(format!("'{entry}' and another entry overlap")));
                    }
                }
            }
        }
        Ok(Self(entries))
    }

    pub fn entries(&self) -> &[ScheduledThreshold] {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the threshold at this wall-clock time; `None` if no entry applies.
    pub fn threshold_on(&self, day: ScheduleDay, minute_of_day: u32) -> Option<i64> {
        let minute = day.index() * DAY_MINUTES + minute_of_day;
        self.0.iter().find(|entry| entry.holds_at(minute)).map(|entry| entry.max_waiting_orders)
    }
}

impl fmt::Display for ScheduledThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.days.is_empty() {
            let days: Vec<_> = self.days.iter().map(|day| day.as_str()).collect();
            write!(f, "{} ", days.join(","))?;
        }
        write!(f, "{}-{}={}", self.from, self.to, self.max_waiting_orders)
    }
}

impl fmt::Display for ThresholdSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&entries.join("; "))
    }
}

impl FromStr for ScheduledThreshold {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let unclear = || ScheduleError(format!("'{text}' is not an entry such as MON-FRI 07:00-09:30=60"));
        let (days, times) = match text.trim().rsplit_once(' ') {
            Some((days, times)) => (read_days(days)?, times),
            None => (Vec::new(), text.trim()),
        };
        let (span, threshold) = times.split_once('=').ok_or_else(unclear)?;
        let (from, to) = span.split_once('-').ok_or_else(unclear)?;
        let max_waiting_orders = threshold.parse().map_err(|_| unclear())?;
        Ok(Self { days, from: from.parse()?, to: to.parse()?, max_waiting_orders })
    }
}

/// Parses days such as `MON-FRI`, `SAT,SUN` or `FRI-MON,WED`.
fn read_days(text: &str) -> Result<Vec<ScheduleDay>, ScheduleError> {
    let mut days = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        let (first, last) = (first.parse::<ScheduleDay>()?, last.parse::<ScheduleDay>()?);
        let count = (last.index() + 7 - first.index()) % 7 + 1;
        let named = ScheduleDay::ALL.into_iter().cycle().skip(first.index() as usize).take(count as usize);
        days.extend(named);
    }
    days.sort();
    days.dedup();
    Ok(days)
}

impl FromStr for ThresholdSchedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let entries = text.split(';').map(str::trim).filter(|entry| !entry.is_empty()).map(str::parse);
        Self::new(entries.collect::<Result<_, _>>()?)
    }
}

/// An IANA time zone, such as `Asia/Jakarta`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AreaTimeZone(Tz);

impl AreaTimeZone {
    pub const UTC: Self = Self(Tz::UTC);

    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// Returns the start of the local hour that contains this instant. An hour that a clock change repeats counts as two.
    pub fn hour_start(self, at: DateTime<Utc>) -> DateTime<Utc> {
        schedule::local_hour(at, self.0)
    }

    /// Returns the local start of an hour for people, such as `Mon 2026-03-30 09:00 +07:00`. The offset distinguishes the
    /// two hours that a clock change repeats.
    pub fn describe_hour(self, at: DateTime<Utc>) -> String {
        at.with_timezone(&self.0).format("%a %Y-%m-%d %H:%M %:z").to_string()
    }

    /// Returns the local weekday and minute of the day at this instant.
    pub fn wall_clock(self, at: DateTime<Utc>) -> (ScheduleDay, u32) {
        let local = at.with_timezone(&self.0);
        (local.weekday().into(), local.hour() * 60 + local.minute())
    }
}

impl FromStr for AreaTimeZone {
    type Err = ScheduleError;

    fn from_str(name: &str) -> Result<Self, ScheduleError> {
        let zone = name.parse::<Tz>();
        zone.map(Self).map_err(|_| ScheduleError(format!("'{name}' is not an IANA time zone such as Asia/Jakarta")))
    }
}

impl TryFrom<String> for AreaTimeZone {
    type Error = ScheduleError;

    fn try_from(name: String) -> Result<Self, ScheduleError> {
        name.parse()
    }
}

impl From<AreaTimeZone> for String {
    fn from(zone: AreaTimeZone) -> Self {
        zone.name().to_owned()
    }
}

impl fmt::Display for AreaTimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A schedule with the time zone of its area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalSchedule {
    pub zone: AreaTimeZone,
    pub schedule: ThresholdSchedule,
}

impl LocalSchedule {
    /// Returns the threshold at this instant; `None` if no entry applies.
    pub fn threshold_at(&self, now: DateTime<Utc>) -> Option<i64> {
        let (day, minute) = self.zone.wall_clock(now);
        self.schedule.threshold_on(day, minute)
    }
}
