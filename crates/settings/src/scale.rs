//! `[scale]`: how many replicas of `work` `GET /admin/scale` answers.

use garde::Validate;
use model::bounds::number_within;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct ScaleConfig {
    #[garde(custom(number_within(1.0..=10_000.0)))]
    pub min: u32,
    #[garde(custom(number_within(1.0..=10_000.0)))]
    pub max: u32,
    /// The share of its places that a replica is to use, in percent.
    #[garde(custom(number_within(1.0..=100.0)))]
    pub target: u32,
    /// Jobs that one replica runs at the same time, in all its queues.
    #[garde(custom(number_within(1.0..=100_000.0)))]
    pub per_worker: u32,
}
