//! `[database]`: where the truth is.

use std::{path::PathBuf, time::Duration};

use model::duration;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseConfig {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
    /// Login of the history's owner. Empty: workers add and drop no days of it.
    pub maintenance_url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_url_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_url_file: Option<PathBuf>,
    pub max_connections: u32,
    #[serde(with = "duration")]
    pub statement_timeout: Duration,
}
