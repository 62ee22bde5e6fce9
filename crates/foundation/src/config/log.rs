//! `[log]`: the log's format and filter.

use garde::Validate;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    #[garde(skip)]
    pub format: LogFormat,
    #[garde(custom(parse_as_filter))]
    pub filter: String,
}

fn parse_as_filter(filter: &str, (): &()) -> garde::Result {
    let parsed = tracing_subscriber::EnvFilter::try_new(filter);
    parsed.map(drop).map_err(|error| garde::Error::new(format!("is not valid: '{filter}': {error}")))
}
