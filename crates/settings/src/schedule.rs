//! `[schedules]`: times of periodic tasks, as an interval or a cron expression in UTC. Pure.

use std::{str::FromStr, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use croner::Cron;
use model::duration;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduledTask {
    /// Removes rows whose retention has ended.
    Cleanup,
    /// Stores snapshots of the queues.
    Statistics,
    /// Counts the drivers and offers of the last minute.
    Supply,
    /// Proves the history since the last run.
    Proof,
}

impl ScheduledTask {
    pub const ALL: [Self; 4] = [Self::Cleanup, Self::Statistics, Self::Supply, Self::Proof];

    pub fn name(self) -> &'static str {
        match self {
            Self::Cleanup => "cleanup",
            Self::Statistics => "statistics",
            Self::Supply => "supply",
            Self::Proof => "proof",
        }
    }

    /// Returns the time between a slot and its run. Offers of the minute before the slot may still be in a transaction
    /// when it ends, so the supply log waits for them as long as a statement may take.
    pub fn delay(self) -> Duration {
        match self {
            Self::Cleanup | Self::Statistics | Self::Proof => Duration::ZERO,
            Self::Supply => Duration::from_secs(10),
        }
    }
}

/// Reason why a schedule has no next run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskScheduleError {
    #[error("an interval must be at least 1s")]
    TooShort,
    #[error("'{expression}' is not a cron expression ({reason}); write \"0 3 * * *\"")]
    NotCron { expression: String, reason: String },
    #[error("no time after {0}")]
    NeverAgain(DateTime<Utc>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TaskSchedule {
    /// At whole multiples of this interval since the epoch; at least one second.
    #[serde(with = "duration")]
    Every(Duration),
    /// Cron expression with five fields, in UTC.
    Cron(String),
}

impl TaskSchedule {
    /// Returns the first slot after `now`.
    pub fn next_after(&self, now: DateTime<Utc>) -> Result<DateTime<Utc>, TaskScheduleError> {
        let never_again = TaskScheduleError::NeverAgain(now);
        match self {
            Self::Every(interval) if interval.as_secs() < 1 => Err(TaskScheduleError::TooShort),
            Self::Every(interval) => {
                let next = i64::try_from(interval.as_secs())
                    .ok()
                    .and_then(|step| (now.timestamp() / step + 1).checked_mul(step));
                next.and_then(|slot| DateTime::from_timestamp(slot, 0)).ok_or(never_again)
            }
            Self::Cron(expression) => {
                let cron = Cron::from_str(expression).map_err(|error| TaskScheduleError::NotCron {
                    expression: expression.clone(),
                    reason: error.to_string(),
                })?;
                // Slots are whole seconds. The slot that contains `now` has started.
                let from = now - TimeDelta::nanoseconds(i64::from(now.timestamp_subsec_nanos()));
                cron.find_next_occurrence(&from, false).map_err(|_| never_again)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn interval_runs_at_its_multiples() {
        let hourly = TaskSchedule::Every(Duration::from_secs(3600));
        assert_eq!(hourly.next_after(at("2026-01-01T10:20:30.5Z")).unwrap(), at("2026-01-01T11:00:00Z"));
        assert_eq!(hourly.next_after(at("2026-01-01T11:00:00Z")).unwrap(), at("2026-01-01T12:00:00Z"));
    }

    #[test]
    fn cron_expression_runs_in_utc() {
        let nightly = TaskSchedule::Cron("0 3 * * *".to_owned());
        assert_eq!(nightly.next_after(at("2026-01-01T02:59:59.9Z")).unwrap(), at("2026-01-01T03:00:00Z"));
        assert_eq!(nightly.next_after(at("2026-01-01T03:00:00.1Z")).unwrap(), at("2026-01-02T03:00:00Z"));
    }

    #[test]
    fn invalid_cron_error_shows_an_example() {
        let error = TaskSchedule::Cron("at night".to_owned()).next_after(Utc::now()).unwrap_err().to_string();
        assert!(error.contains("0 3 * * *"), "{error}");
        assert!(TaskSchedule::Every(Duration::ZERO).next_after(Utc::now()).is_err());
    }
}
