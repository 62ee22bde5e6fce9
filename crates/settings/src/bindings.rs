//! `[bindings]` and `[providers.NAME]`: calls to providers.

use std::{path::PathBuf, time::Duration};

use garde::Validate;
use jobs::BindingId;
use model::{
    bounds::{DAY, MS, number_within, time_within},
    duration,
};
use serde::{Deserialize, Serialize};

/// Maximum number of bindings that metrics count individually. Each adds a few series to every process.
const MOST_IN_METRICS: usize = 100;

#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct BindingsConfig {
    /// Maximum number of open calls in total, unless an operator has set another limit.
    #[garde(custom(number_within(1.0..=100_000.0)))]
    pub max_concurrent_calls: u32,
    /// Time added to a call's timeout before the binding may make another call.
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=Duration::from_secs(60))))]
    pub call_margin: Duration,
    /// Bindings whose transactions are counted individually in the metrics.
    #[serde(default)]
    #[garde(custom(name_few))]
    pub metrics_for: Vec<BindingId>,
    /// Key that encrypts stored OTPs: base64 of 32 bytes. Empty: OTPs are not accepted.
    #[serde(default)]
    pub otp_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otp_key_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otp_key_file: Option<PathBuf>,
    /// Previous key. OTPs encrypted with it can still be decrypted.
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

/// Breaker of a provider's server.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct ServerBreakerConfig {
    /// Number of consecutive failures over all workers.
    #[garde(custom(number_within(1.0..=1_000_000.0)))]
    pub failures: u32,
    /// First pause. It doubles with each further failure.
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=DAY)))]
    pub open: Duration,
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=DAY)))]
    pub max_open: Duration,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// Bearer token for each of its servers.
    #[serde(default)]
    pub api_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// Hosts allowed for its servers, each as `host` or `host:port`. Without a port, any port of the host is allowed.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Whether its servers may have private or loopback addresses.
    #[serde(default)]
    pub allow_private: bool,
}
