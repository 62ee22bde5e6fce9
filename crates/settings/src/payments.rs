//! `[payments]`: the service that pays money back.

use std::{path::PathBuf, time::Duration};

use garde::Validate;
use model::{
    bounds::{DAY, MS, SECOND, time_within},
    duration,
};
use serde::{Deserialize, Serialize};

/// `[payments]` of the configuration.
#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct PaymentsConfig {
    /// Where the service answers, with the path its API begins with. Empty: there is none.
    pub url: String,
    /// Sent as a bearer token.
    #[serde(default)]
    pub api_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// What the service signs its callbacks with: `whsec_` and base64. Empty: no callback is accepted.
    #[serde(default)]
    pub callback_secret: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_file: Option<PathBuf>,
    /// The secret before it, still accepted while the service changes over.
    #[serde(default)]
    pub callback_secret_previous: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_previous_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret_previous_file: Option<PathBuf>,
    /// A call that takes longer failed, and whether it had an effect is unknown.
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=Duration::from_secs(15))))]
    pub timeout: Duration,
    /// When a refund that was accepted is asked about, in case its callback is lost.
    #[serde(with = "duration")]
    #[garde(custom(time_within(SECOND..=DAY)))]
    pub ask_again: Duration,
}
