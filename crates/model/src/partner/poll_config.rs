//! How often a partner is asked.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration;

/// When the partner is asked for what its callbacks should have said.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PollConfig {
    /// Share of orders whose job id is asked for; operators may change it at run time.
    pub percent: u8,
    /// After the booking: what the callback has before we ask.
    #[serde(with = "duration")]
    pub first: Duration,
    #[serde(with = "duration")]
    pub initial: Duration,
    pub multiplier: f64,
    #[serde(with = "duration")]
    pub max: Duration,
    /// Share of a pause that is random, both ways.
    pub jitter: f64,
    /// From the booking on; after it nothing more is asked.
    #[serde(with = "duration")]
    pub budget: Duration,
    /// A booking the partner does not know is lost only after this.
    #[serde(with = "duration")]
    pub not_found_grace: Duration,
    /// Once a driver is under way: how often to ask whether the trip is over.
    #[serde(with = "duration")]
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
