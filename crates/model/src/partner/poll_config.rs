//! Settings for polling a partner.

use std::time::Duration;

use garde::Validate;
use serde::{Deserialize, Serialize};

use crate::{
    bounds::{DAY, MS, NONE, YEAR, number_within, time_within},
    duration,
};

/// Times of polls for facts that callbacks should have reported.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct PollConfig {
    /// Percentage of orders whose job id is polled. Operators can change it at run time.
    #[garde(custom(number_within(0.0..=100.0)))]
    pub percent: u8,
    /// Time from the booking to the first poll, in which the callback may arrive.
    #[serde(with = "duration")]
    #[garde(custom(time_within(NONE..=DAY)))]
    pub first: Duration,
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=DAY)))]
    pub initial: Duration,
    #[garde(custom(number_within(1.0..=100.0)))]
    pub multiplier: f64,
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=DAY)))]
    pub max: Duration,
    /// Random share of a pause, in both directions.
    #[garde(custom(number_within(0.0..=0.99)))]
    pub jitter: f64,
    /// Maximum time for polls, from the booking.
    #[serde(with = "duration")]
    #[garde(custom(time_within(NONE..=YEAR)))]
    pub budget: Duration,
    /// Time from the booking after which an unknown booking counts as lost.
    #[serde(with = "duration")]
    #[garde(custom(time_within(NONE..=DAY)))]
    pub not_found_grace: Duration,
    /// Poll interval while a driver is on the way, to detect the end of the trip.
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=YEAR)))]
    pub follow: Duration,
}

impl Default for PollConfig {
    fn default() -> Self {
        Self {
            percent: 100,
            first: Duration::from_secs(5),
            initial: Duration::from_secs(2),
            multiplier: 2.0,
            max: Duration::from_secs(60),
            jitter: 0.3,
            budget: Duration::from_secs(1800),
            not_found_grace: Duration::from_secs(60),
            follow: Duration::from_secs(300),
        }
    }
}
