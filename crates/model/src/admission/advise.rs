//! Proposes thresholds from the history of an area, with reasons, and tests them on another period. A person sets them.
//! Source: the requirement on server busy, 9.4. Pure.
//!
//! As many orders may wait as find a driver within the promised wait. The rate is the number of orders per hour that
//! found a driver, taken at the lower quartile of the comparable hours, times the wait. In quiet hours the few orders
//! do not show how many could be served. There, the largest number that waited at the same time in a good hour may wait
//! again.

use std::{collections::VecDeque, fmt, time::Duration};

use chrono::{Datelike, NaiveDateTime, TimeDelta, Timelike};
use serde::{Deserialize, Serialize};

use super::schedule::{MinuteOfDay, ScheduleDay, ScheduledThreshold};

/// Minimum number of observed hours for a proposal.
const FEWEST_HOURS: usize = 3;
/// Classes of comparable days.
const DAY_CLASSES: [&[ScheduleDay]; 2] = [
    &[ScheduleDay::Mon, ScheduleDay::Tue, ScheduleDay::Wed, ScheduleDay::Thu, ScheduleDay::Fri],
    &[ScheduleDay::Sat, ScheduleDay::Sun],
];
const DAY_HOURS: u32 = 24;

/// Observations of one hour in an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ObservedHour {
    pub day: ScheduleDay,
    /// 0 to 23, in the area's time zone.
    pub hour: u32,
    pub created: u64,
    /// Number of the created orders that found a driver.
    pub found_driver: u64,
    /// Maximum number of orders that waited at the same time; `None` if unknown.
    pub peak_waiting: Option<u64>,
}

impl ObservedHour {
    /// Returns how many waiting orders are served within `wait`.
    fn served_within(&self, wait: Duration) -> u64 {
        served_within(self.found_driver, wait)
    }

    /// Returns whether at least nine of ten orders found a driver.
    fn went_well(&self) -> bool {
        self.created > 0 && self.found_driver.saturating_mul(10) >= self.created.saturating_mul(9)
    }
}

fn served_within(per_hour: u64, wait: Duration) -> u64 {
    per_hour.saturating_mul(wait.as_secs()) / 3_600
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdviceReason {
    /// Number of orders per hour that found a driver, at the lower quartile.
    Served { per_hour: u64 },
    /// Number of orders that waited at the same time in an hour in which nine of ten found a driver.
    WaitedWell { at_once: u64 },
    /// No order was served within the wait. One order may wait, to detect an improvement.
    NotServed,
}

impl fmt::Display for AdviceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served { per_hour } => {
                write!(f, "{per_hour} orders per hour found a driver, at the lower quartile of these hours")
            }
            Self::WaitedWell { at_once } => {
                write!(f, "{at_once} orders waited at the same time, and nine of ten found a driver")
            }
            Self::NotServed => f.write_str("too few orders found a driver to promise that wait to more than one order"),
        }
    }
}

/// Proposed threshold for a part of the week.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdvisedSpan {
    pub entry: ScheduledThreshold,
    /// Number of hours behind the proposal.
    pub hours_seen: usize,
    /// Reason of the hour with the lowest threshold.
    pub reason: AdviceReason,
}

/// Proposal for one hour of a class of days.
#[derive(Debug, Clone, Copy)]
struct AdvisedSlot {
    threshold: u64,
    hours_seen: usize,
    reason: AdviceReason,
}

/// Proposes thresholds from these hours. With a full queue, the last order still finds a driver within `wait`. Parts of
/// the week with fewer than three observed hours get no proposal.
pub fn propose_thresholds(hours: &[ObservedHour], wait: Duration) -> Vec<AdvisedSpan> {
    DAY_CLASSES.iter().flat_map(|days| propose_for_days(days, hours, wait)).collect()
}

fn propose_for_days(days: &[ScheduleDay], hours: &[ObservedHour], wait: Duration) -> Vec<AdvisedSpan> {
    let mut spans = Vec::new();
    let mut run: Vec<AdvisedSlot> = Vec::new();
    let mut begin = 0;
    for hour in 0..DAY_HOURS {
        let slot = propose_slot(days, hour, hours, wait);
        let joins = slot.is_some_and(|slot| run.iter().all(|other| are_alike(slot.threshold, other.threshold)));
        if !joins || run.is_empty() {
            spans.extend(close_run(days, begin, hour, &run));
            run.clear();
            begin = hour;
        }
        run.extend(slot);
    }
    spans.extend(close_run(days, begin, DAY_HOURS, &run));
    spans
}

/// Returns whether two thresholds differ by at most a quarter of the smaller one. A schedule with small changes every
/// hour would be unreadable.
fn are_alike(a: u64, b: u64) -> bool {
    let (small, large) = (a.min(b), a.max(b));
    large <= small + small / 4 + 1
}

fn propose_slot(days: &[ScheduleDay], hour: u32, hours: &[ObservedHour], wait: Duration) -> Option<AdvisedSlot> {
    let seen: Vec<_> = hours.iter().filter(|seen| seen.hour == hour && days.contains(&seen.day)).collect();
    if seen.len() < FEWEST_HOURS {
        return None;
    }
    let mut found: Vec<u64> = seen.iter().map(|hour| hour.found_driver).collect();
    found.sort_unstable();
    let per_hour = found[found.len() / 4];
    let served = served_within(per_hour, wait);
    let well = seen.iter().filter(|hour| hour.went_well()).filter_map(|hour| hour.peak_waiting).max().unwrap_or(0);
    let (threshold, reason) = if well > served {
        (well, AdviceReason::WaitedWell { at_once: well })
    } else if served > 0 {
        (served, AdviceReason::Served { per_hour })
    } else {
        (1, AdviceReason::NotServed)
    };
    Some(AdvisedSlot { threshold, hours_seen: seen.len(), reason })
}

/// Returns the hours of a run as one entry, with their lowest threshold.
fn close_run(days: &[ScheduleDay], begin: u32, end: u32, run: &[AdvisedSlot]) -> Option<AdvisedSpan> {
    let least = run.iter().min_by_key(|slot| slot.threshold)?;
    let entry = ScheduledThreshold {
        days: days.to_vec(),
        from: MinuteOfDay::new(begin * 60)?,
        to: MinuteOfDay::new(end * 60)?,
        max_waiting_orders: i64::try_from(least.threshold.min(1_000_000)).unwrap_or(1_000_000),
    };
    Some(AdvisedSpan { entry, hours_seen: run.iter().map(|slot| slot.hours_seen).sum(), reason: least.reason })
}

/// Test of thresholds on hours that were not used to propose them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct BackTest {
    /// Number of hours with orders.
    pub hours: u64,
    /// Number of hours in which the last order of a full queue would have found a driver within the wait.
    pub in_time: u64,
    /// Number of hours in which that order would have waited longer.
    pub too_long: u64,
    /// Number of good hours in which the queue never reached the threshold. They do not show whether a full queue would
    /// have been served.
    pub untested: u64,
    /// Number of hours in which the threshold was less than half of the orders that would have been served in time.
    pub too_strict: u64,
    /// Number of hours in which more orders waited than the threshold allows, so that orders would have been refused.
    pub refusing: u64,
}

/// Tests thresholds on these hours. `threshold_on` returns the threshold of a weekday and a minute of the day.
pub fn judge_thresholds(
    hours: &[ObservedHour],
    wait: Duration,
    threshold_on: impl Fn(ScheduleDay, u32) -> i64,
) -> BackTest {
    let mut test = BackTest::default();
    for hour in hours.iter().filter(|hour| hour.created > 0) {
        let threshold = u64::try_from(threshold_on(hour.day, hour.hour * 60)).unwrap_or(0);
        let served = hour.served_within(wait);
        let was_shorter = hour.peak_waiting.is_some_and(|peak| peak < threshold);
        test.hours += 1;
        if threshold <= served {
            test.in_time += 1;
        } else if was_shorter && hour.went_well() {
            test.untested += 1;
        } else {
            test.too_long += 1;
        }
        test.too_strict += u64::from(threshold < served / 2);
        test.refusing += u64::from(hour.peak_waiting.is_some_and(|peak| peak > threshold));
    }
    test
}

/// Number of requests that thresholds would have refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct RefusalTest {
    pub requests: u64,
    pub refused: u64,
}

/// Applies thresholds to requests at these local times, in ascending order. Each admitted order is assumed to wait the
/// whole `wait`, so the result overestimates refusals. `threshold_on` returns the threshold of a weekday and a minute
/// of the day.
pub fn try_on_requests(
    requests: &[NaiveDateTime],
    wait: Duration,
    threshold_on: impl Fn(ScheduleDay, u32) -> i64,
) -> RefusalTest {
    let wait = TimeDelta::from_std(wait).unwrap_or(TimeDelta::MAX);
    let mut waiting: VecDeque<NaiveDateTime> = VecDeque::new();
    let mut test = RefusalTest::default();
    for at in requests {
        while waiting.front().is_some_and(|begun| *at - *begun >= wait) {
            waiting.pop_front();
        }
        let threshold = threshold_on(at.weekday().into(), at.hour() * 60 + at.minute());
        test.requests += 1;
        if waiting.len() as u64 >= u64::try_from(threshold).unwrap_or(0) {
            test.refused += 1;
        } else {
            waiting.push_back(*at);
        }
    }
    test
}
