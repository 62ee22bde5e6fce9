//! `[traces]`: which orders are traced, and where their spans go.

use std::{path::PathBuf, time::Duration};

use garde::Validate;
use model::{
    bounds::{MS, NONE, number_within, time_within},
    duration,
};
use serde::{Deserialize, Serialize};

/// `[traces]` of the configuration.
#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct TracesConfig {
    /// Where the collector takes OTLP over HTTP, with the path. Empty: nothing is traced.
    pub endpoint: String,
    /// The share of orders that are traced, from 0 to 1.
    #[garde(custom(number_within(0.0..=1.0)))]
    pub sample_ratio: f64,
    /// Sent with each request, as `name=value,name=value`.
    #[serde(default)]
    pub headers: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers_file: Option<PathBuf>,
    /// What spans call this installation.
    #[garde(custom(name_something))]
    pub service_name: String,
    /// A request that takes longer failed, and its spans are dropped.
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=Duration::from_secs(60))))]
    pub timeout: Duration,
    /// Spans that may wait to be sent.
    #[garde(custom(number_within(1.0..=1_000_000.0)))]
    pub max_queued_spans: usize,
    /// How long the end of a process may wait for the last spans.
    #[serde(with = "duration")]
    #[garde(custom(time_within(NONE..=Duration::from_secs(60))))]
    pub flush: Duration,
}

fn name_something(name: &str, (): &()) -> garde::Result {
    if name.is_empty() { Err(garde::Error::new("must not be empty")) } else { Ok(()) }
}
