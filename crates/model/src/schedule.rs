//! Times of orders with a pickup time: their rules, and when dispatch starts.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, SubsecRound, TimeDelta, Utc};
use chrono_tz::Tz;

use crate::field_error::FieldError;

/// Time before the start within which the creation starts dispatch itself. The clock of the caller may be behind the
/// clock of Postgres by less.
const START_NOW: TimeDelta = TimeDelta::seconds(1);

/// Settings of a service type for orders with a pickup time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulePolicy {
    /// Time between the start of dispatch and the pickup.
    pub lead: Duration,
    /// Time between the warning and the pickup. Zero: no warning.
    pub warn_before: Duration,
    /// Maximum time between the request and the pickup, in days.
    pub max_days_ahead: u16,
}

impl SchedulePolicy {
    /// Returns the error for a pickup time in the past or too far ahead.
    pub fn find_problem(&self, pickup_at: DateTime<Utc>, now: DateTime<Utc>) -> Option<FieldError> {
        let last = now + TimeDelta::days(i64::from(self.max_days_ahead));
        let show = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
        let text = if pickup_at < now {
            format!("pickup_at {} is in the past", show(pickup_at))
        } else if pickup_at > last {
            let days = self.max_days_ahead;
            format!("pickup_at {} is more than {days} days ahead: the latest is {}", show(pickup_at), show(last))
        } else {
            return None;
        };
        Some(FieldError::new("pickup_at", text))
    }
}

/// Times that follow from the pickup time of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PickupTimes {
    /// Start of dispatch; `None`: dispatch starts now.
    pub starts_at: Option<DateTime<Utc>>,
    /// Time of the warning; `None`: it has passed, or there is none.
    pub warn_at: Option<DateTime<Utc>>,
}

impl PickupTimes {
    pub fn new(pickup_at: DateTime<Utc>, policy: &SchedulePolicy, now: DateTime<Utc>) -> Self {
        let before = |time: Duration| pickup_at.checked_sub_signed(TimeDelta::from_std(time).ok()?);
        let warns = !policy.warn_before.is_zero();
        Self {
            starts_at: before(policy.lead).filter(|at| *at > now + START_NOW),
            warn_at: before(policy.warn_before).filter(|at| warns && *at > now),
        }
    }
}

/// Returns the time as rows store it, in whole milliseconds.
pub fn as_stored(time: DateTime<Utc>) -> DateTime<Utc> {
    time.trunc_subsecs(3)
}

/// Returns the start of the local hour that contains `at`. An hour that a clock change repeats counts as two.
pub fn local_hour(at: DateTime<Utc>, zone: Tz) -> DateTime<Utc> {
    let local = at.with_timezone(&zone).naive_local();
    let past_hour = TimeDelta::milliseconds(local.and_utc().timestamp_millis().rem_euclid(3_600_000));
    at.trunc_subsecs(3) - past_hour
}

#[cfg(any(test, feature = "fixtures"))]
pub fn example_policy() -> SchedulePolicy {
    SchedulePolicy { lead: Duration::from_secs(20 * 60), warn_before: Duration::from_secs(10 * 60), max_days_ahead: 30 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text).unwrap().to_utc()
    }

    #[test]
    fn pickup_time_must_be_ahead_and_near() {
        let (policy, now) = (example_policy(), time("2026-11-28T10:00:00Z"));
        let problem = |text: &str| policy.find_problem(time(text), now).map(|problem| problem.message);
        assert_eq!(problem("2026-11-28T10:00:00Z"), None);
        assert_eq!(problem("2026-12-28T10:00:00Z"), None);
        assert_eq!(problem("2026-11-28T16:59:59+07:00").unwrap(), "pickup_at 2026-11-28T09:59:59Z is in the past");
        assert_eq!(
            problem("2026-12-28T10:00:01Z").unwrap(),
            "pickup_at 2026-12-28T10:00:01Z is more than 30 days ahead: the latest is 2026-12-28T10:00:00Z"
        );
    }

    #[test]
    fn times_follow_from_the_pickup() {
        let (policy, now) = (example_policy(), time("2026-11-28T10:00:00Z"));
        let times = |text: &str| PickupTimes::new(time(text), &policy, now);
        let later = times("2026-11-28T11:00:00Z");
        assert_eq!(later.starts_at, Some(time("2026-11-28T10:40:00Z")));
        assert_eq!(later.warn_at, Some(time("2026-11-28T10:50:00Z")));
        assert_eq!(times("2026-11-28T10:20:00Z").starts_at, None, "within the lead");
        assert_eq!(times("2026-11-28T10:10:00Z").warn_at, None, "too late for a warning");
        let silent = SchedulePolicy { warn_before: Duration::ZERO, ..example_policy() };
        assert_eq!(PickupTimes::new(time("2026-11-28T11:00:00Z"), &silent, now).warn_at, None);
    }

    #[test]
    fn offsets_and_clock_changes_name_the_same_instant() {
        let (policy, now) = (example_policy(), time("2026-03-28T00:00:00Z"));
        let start = |text: &str| PickupTimes::new(time(text), &policy, now).starts_at.unwrap();
        // Three offsets of one instant.
        let starts = ["2026-03-29T08:00:00+07:00", "2026-03-29T01:00:00Z", "2026-03-28T21:00:00-04:00"].map(start);
        assert_eq!(starts, [time("2026-03-29T00:40:00Z"); 3]);
        // Berlin changes to daylight saving time at 01:00 UTC: 03:10 is ten minutes after 01:59:59.
        assert_eq!(start("2026-03-29T03:10:00+02:00"), time("2026-03-29T01:50:00+01:00"));
        // And back in October: the two pickups at 02:30 are an hour apart.
        let (first, second) = (start("2026-10-25T02:30:00+02:00"), start("2026-10-25T02:30:00+01:00"));
        assert_eq!((second - first).num_minutes(), 60);
    }

    #[test]
    fn hours_follow_the_local_clock() {
        let hour = |text: &str, zone: Tz| local_hour(time(text), zone);
        assert_eq!(hour("2026-11-28T10:59:59.5Z", chrono_tz::Asia::Jakarta), time("2026-11-28T10:00:00Z"));
        assert_eq!(hour("2026-11-28T10:59:00Z", chrono_tz::Asia::Kolkata), time("2026-11-28T10:30:00Z"));
        // The hour from 2 to 3 occurs twice.
        let berlin = chrono_tz::Europe::Berlin;
        assert_eq!(hour("2026-10-25T00:30:00Z", berlin), time("2026-10-25T00:00:00Z"));
        assert_eq!(hour("2026-10-25T01:30:00Z", berlin), time("2026-10-25T01:00:00Z"));
        assert_eq!(hour("2026-03-29T01:30:00Z", berlin), time("2026-03-29T01:00:00Z"));
    }
}
