//! `[traces]`: the share of orders that are traced, and the collector for their spans.

use std::{path::PathBuf, time::Duration};

use garde::Validate;
use model::{
    bounds::{MS, NONE, number_within, time_within},
    duration,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct TracesConfig {
    /// URL of the collector's OTLP/HTTP endpoint, including the path. If empty, nothing is traced.
    pub endpoint: String,
    /// Share of orders that are traced, from 0 to 1.
    #[garde(custom(number_within(0.0..=1.0)))]
    pub sample_ratio: f64,
    /// Headers of each request, as `name=value,name=value`.
    #[serde(default)]
    pub headers: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers_file: Option<PathBuf>,
    /// Name of this installation in the spans (`service.name`).
    #[garde(custom(name_something))]
    pub service_name: String,
    /// Timeout for one request. When it expires, the request's spans are dropped.
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=Duration::from_secs(60))))]
    pub timeout: Duration,
    /// Maximum number of spans queued for sending.
    #[garde(custom(number_within(1.0..=1_000_000.0)))]
    pub max_queued_spans: usize,
    /// Maximum time that a stopping process waits for the last spans to be sent.
    #[serde(with = "duration")]
    #[garde(custom(time_within(NONE..=Duration::from_secs(60))))]
    pub flush: Duration,
}

fn name_something(name: &str, (): &()) -> garde::Result {
    if name.is_empty() { Err(garde::Error::new("must not be empty")) } else { Ok(()) }
}
