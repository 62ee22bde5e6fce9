//! `[retention]`: how long rows are kept.

use std::time::Duration;

use model::duration;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionConfig {
    #[serde(with = "duration")]
    pub orders: Duration,
    #[serde(with = "duration")]
    pub events: Duration,
    #[serde(with = "duration")]
    pub messages: Duration,
    #[serde(with = "duration")]
    pub records: Duration,
    #[serde(with = "duration")]
    pub dead_jobs: Duration,
    #[serde(with = "duration")]
    pub erasures: Duration,
}

impl RetentionConfig {
    /// Promised to producers, so not a setting.
    pub const IDEMPOTENCY_KEYS: Duration = Duration::from_secs(24 * 3600);
}
