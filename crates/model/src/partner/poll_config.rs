//! How often a partner is asked.

use std::time::Duration;

use garde::Validate;
use serde::{Deserialize, Serialize};

use crate::{
    bounds::{DAY, MS, NONE, YEAR, number_within, time_within},
    duration,
};

/// When the partner is asked for what its callbacks should have said.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct PollConfig {
    /// Share of orders whose job id is asked for; operators may change it at run time.
    #[garde(custom(number_within(0.0..=100.0)))]
    pub percent: u8,
    /// After the booking: what the callback has before we ask.
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
    /// Share of a pause that is random, both ways.
    #[garde(custom(number_within(0.0..=0.99)))]
    pub jitter: f64,
    /// From the booking on; after it nothing more is asked.
    #[serde(with = "duration")]
    #[garde(custom(time_within(NONE..=YEAR)))]
    pub budget: Duration,
    /// A booking the partner does not know is lost only after this.
    #[serde(with = "duration")]
    #[garde(custom(time_within(NONE..=DAY)))]
    pub not_found_grace: Duration,
    /// Once a driver is under way: how often to ask whether the trip is over.
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
