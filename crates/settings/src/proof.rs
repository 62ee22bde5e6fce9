//! `[proof]`: the continuous proof of the history.

use std::time::Duration;

use garde::Validate;
use model::{
    bounds::{YEAR, time_within},
    duration,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct ProofConfig {
    /// Maximum time that cleanup keeps rows because the fold has not reached them.
    #[serde(with = "duration")]
    #[garde(custom(time_within(Duration::ZERO..=YEAR)))]
    pub max_wait: Duration,
}
