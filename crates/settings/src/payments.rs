//! `[payments]`: the service that pays refunds.

use std::{path::PathBuf, time::Duration};

use garde::Validate;
use model::{
    bounds::{DAY, MS, SECOND, time_within},
    duration,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct PaymentsConfig {
    /// Base URL of the service's API. Empty: no service.
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
    /// Previous secret, still accepted while the service switches to the new one.
    #[serde(default)]
    pub callback_secret_previous: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_previous_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_previous_file: Option<PathBuf>,
    /// Timeout of a call. A call that times out may have had an effect.
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=Duration::from_secs(15))))]
    pub timeout: Duration,
    /// Time after which the service is asked about an accepted refund, in case its callback was lost.
    #[serde(with = "duration")]
    #[garde(custom(time_within(SECOND..=DAY)))]
    pub ask_again: Duration,
}
