//! The time of this machine, as a value that tests can set.
//!
//! Deadlines in rows do not use this clock. They use Postgres' clock, `dispatchq_now()`, which decisions get as an
//! argument.

use std::{
    fmt,
    sync::atomic::{AtomicI64, Ordering},
};

use chrono::{DateTime, TimeDelta, Utc};

pub trait Clock: fmt::Debug + Send + Sync {
    fn now(&self) -> DateTime<Utc>;
}

/// A clock that stands still until a test moves it. Its resolution is one millisecond, like the times in rows.
#[derive(Debug)]
pub struct FixedClock(AtomicI64);

impl FixedClock {
    pub fn new(now: DateTime<Utc>) -> Self {
        Self(AtomicI64::new(now.timestamp_millis()))
    }

    /// Moves the clock forward, or backward if `by` is negative.
    pub fn move_by(&self, by: TimeDelta) {
        self.0.fetch_add(by.num_milliseconds(), Ordering::SeqCst);
    }
}

impl Clock for FixedClock {
    fn now(&self) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(self.0.load(Ordering::SeqCst)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_clock_moves_only_on_request() {
        let noon: DateTime<Utc> = "2030-01-01T12:00:00.250Z".parse().unwrap();
        let clock = FixedClock::new(noon);
        clock.move_by(TimeDelta::minutes(5));
        clock.move_by(TimeDelta::seconds(-1));
        assert_eq!(clock.now(), noon + TimeDelta::seconds(299));
    }
}
