//! `[bindings]` and `[providers.NAME]`: how providers are called.

use std::{path::PathBuf, time::Duration};

use garde::Validate;
use jobs::BindingId;
use model::{
    bounds::{DAY, MS, number_within, time_within},
    duration,
};
use serde::{Deserialize, Serialize};

/// Bindings that metrics may count one by one: each is a few series of every process.
const MOST_IN_METRICS: usize = 100;

/// `[bindings]` of the configuration.
#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct BindingsConfig {
    /// Calls that may be open at the same time, in all, unless an operator has set another limit.
    #[garde(custom(number_within(1.0..=100_000.0)))]
    pub max_concurrent_calls: u32,
    /// Added to a call's timeout before another call of the binding may be made.
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=Duration::from_secs(60))))]
    pub call_margin: Duration,
    /// Bindings whose transactions metrics count one by one.
    #[serde(default)]
    #[garde(custom(name_few))]
    pub metrics_for: Vec<BindingId>,
    /// What OTPs are encrypted with while they wait: base64 of 32 bytes. Empty: none is taken.
    #[serde(default)]
    pub otp_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otp_key_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otp_key_file: Option<PathBuf>,
    /// The key before it: what waits encrypted with it is still read.
    #[serde(default)]
    pub otp_key_previous: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otp_key_previous_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otp_key_previous_file: Option<PathBuf>,
    #[garde(dive)]
    pub breaker: ServerBreakerConfig,
}

fn name_few(ids: &[BindingId], (): &()) -> garde::Result {
    if ids.len() <= MOST_IN_METRICS {
        return Ok(());
    }
    Err(garde::Error::new(format!("must name at most {MOST_IN_METRICS} bindings, not {}", ids.len())))
}

/// When a provider's server is called no more, and for how long.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct ServerBreakerConfig {
    /// Failures in a row, of all workers.
    #[garde(custom(number_within(1.0..=1_000_000.0)))]
    pub failures: u32,
    /// First pause; it doubles with each failure that follows.
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=DAY)))]
    pub open: Duration,
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=DAY)))]
    pub max_open: Duration,
}

/// One `[providers.NAME]` of the configuration.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// Sent as a bearer token to each of its servers.
    #[serde(default)]
    pub api_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// Hosts that its servers may have, each as `host` or `host:port`. Without a port any port of the host is allowed.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Whether its servers may have addresses of a private network or of this machine.
    #[serde(default)]
    pub allow_private: bool,
}
