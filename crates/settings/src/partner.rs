//! `[partners.NAME]`: settings of a partner.

use std::{path::PathBuf, time::Duration};

use garde::Validate;
use model::{
    bounds::{DAY, MS, NONE, YEAR, number_within, time_within},
    duration,
    partner::PollConfig,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct PartnerConfig {
    /// Base URL of the partner's API.
    pub url: String,
    /// Bearer token.
    #[serde(default)]
    pub api_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// Secret for the signatures of callbacks: `whsec_` and base64. Empty: callbacks are refused.
    #[serde(default)]
    pub callback_secret: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_file: Option<PathBuf>,
    /// Previous secret, still accepted while the partner switches to the new one.
    #[serde(default)]
    pub callback_secret_previous: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_previous_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_previous_file: Option<PathBuf>,
    /// Timeout of a call. A call that times out may have had an effect.
    #[serde(default = "default_timeout", with = "duration")]
    // The job needs time left to record the result of its call.
    #[garde(custom(time_within(MS..=Duration::from_secs(15))))]
    pub timeout: Duration,
    /// Maximum number of calls per second over all processes.
    #[serde(default = "default_rate")]
    #[garde(custom(number_within(1.0..=1_000_000.0)))]
    pub rate_per_s: u32,
    /// Maximum number of concurrent calls over all processes.
    #[serde(default = "default_concurrent")]
    #[garde(custom(number_within(1.0..=1_000_000.0)))]
    pub max_concurrent: u32,
    /// Maximum number of concurrent calls of one process.
    #[serde(default = "default_concurrent_per_process")]
    #[garde(custom(number_within(1.0..=1_000_000.0)))]
    pub max_concurrent_per_process: u32,
    /// Whether the partner's API has the call for changed contents and the contact of a booking.
    #[serde(default)]
    pub details: bool,
    /// Time between the booking and the pickup of a scheduled order, at a partner that accepts pre-bookings. `None`: the
    /// partner accepts none, and the lead of the service type applies.
    #[serde(default, with = "duration::option", skip_serializing_if = "Option::is_none")]
    #[garde(custom(time_within(NONE..=YEAR)))]
    pub lead: Option<Duration>,
    #[serde(default)]
    #[garde(dive)]
    pub poll: PollConfig,
    #[serde(default)]
    #[garde(dive)]
    pub breaker: BreakerConfig,
}

impl PartnerConfig {
    /// Creates the settings of a partner at `url`, with defaults for everything else.
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
            details: false,
            lead: None,
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

/// Less than the slots of every queue whose jobs call partners, so that a slow partner never occupies all of them.
fn default_concurrent_per_process() -> u32 {
    12
}

/// Breaker for calls to the partner.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerConfig {
    /// Number of consecutive failures over all processes.
    #[garde(custom(number_within(1.0..=1_000_000.0)))]
    pub failures: u32,
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=DAY)))]
    pub open: Duration,
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=DAY)))]
    pub max_open: Duration,
    /// Time until calls reach their full rate again.
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
