//! `[partners.NAME]`: what is configured for a partner.

use std::{path::PathBuf, time::Duration};

use garde::Validate;
use model::{
    bounds::{DAY, MS, NONE, number_within, time_within},
    duration,
    partner::PollConfig,
};
use serde::{Deserialize, Serialize};

/// One `[partners.NAME]` of the configuration.
#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct PartnerConfig {
    /// Where the partner answers, with the path its API begins with.
    pub url: String,
    /// Sent as a bearer token.
    #[serde(default)]
    pub api_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// What the partner signs its callbacks with: `whsec_` and base64. Empty: no callback is accepted.
    #[serde(default)]
    pub callback_secret: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_file: Option<PathBuf>,
    /// The secret before it, still accepted while the partner changes over.
    #[serde(default)]
    pub callback_secret_previous: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_previous_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_previous_file: Option<PathBuf>,
    /// A call that takes longer failed, and whether it had an effect is unknown.
    #[serde(default = "default_timeout", with = "duration")]
    // A job must have time left to say how its call went.
    #[garde(custom(time_within(MS..=Duration::from_secs(15))))]
    pub timeout: Duration,
    /// Calls per second of the whole fleet.
    #[serde(default = "default_rate")]
    #[garde(custom(number_within(1.0..=1_000_000.0)))]
    pub rate_per_s: u32,
    /// Calls at the same time of the whole fleet.
    #[serde(default = "default_concurrent")]
    #[garde(custom(number_within(1.0..=1_000_000.0)))]
    pub max_concurrent: u32,
    /// Calls at the same time of one process.
    #[serde(default = "default_concurrent_per_process")]
    #[garde(custom(number_within(1.0..=1_000_000.0)))]
    pub max_concurrent_per_process: u32,
    #[serde(default)]
    #[garde(dive)]
    pub poll: PollConfig,
    #[serde(default)]
    #[garde(dive)]
    pub breaker: BreakerConfig,
}

impl PartnerConfig {
    /// A partner that answers at `url`; nothing else is said.
    pub fn with_url(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            api_key: String::new(),
            api_key_env: None,
            api_key_file: None,
            callback_secret: String::new(),
            callback_secret_env: None,
            callback_secret_file: None,
            callback_secret_previous: String::new(),
            callback_secret_previous_env: None,
            callback_secret_previous_file: None,
            timeout: default_timeout(),
            rate_per_s: default_rate(),
            max_concurrent: default_concurrent(),
            max_concurrent_per_process: default_concurrent_per_process(),
            poll: PollConfig::default(),
            breaker: BreakerConfig::default(),
        }
    }
}

fn default_timeout() -> Duration {
    Duration::from_secs(5)
}

fn default_rate() -> u32 {
    500
}

fn default_concurrent() -> u32 {
    50
}

/// Fewer than the places of any queue, so that a slow partner never has them all.
fn default_concurrent_per_process() -> u32 {
    12
}

/// When calls to the partner stop, and how they come back.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerConfig {
    /// Failures in a row, of the whole fleet.
    #[garde(custom(number_within(1.0..=1_000_000.0)))]
    pub failures: u32,
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=DAY)))]
    pub open: Duration,
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=DAY)))]
    pub max_open: Duration,
    /// How long calls take to come back to their full rate.
    #[serde(with = "duration")]
    #[garde(custom(time_within(NONE..=DAY)))]
    pub ramp_up: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failures: 10,
            open: Duration::from_secs(5),
            max_open: Duration::from_secs(30),
            ramp_up: Duration::from_secs(30),
        }
    }
}
