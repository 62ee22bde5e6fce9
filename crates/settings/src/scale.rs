//! `[scale]`: limits for the number of `work` replicas that `GET /admin/scale` returns.

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
    /// Target use of a replica's slots, in percent.
    #[garde(custom(number_within(1.0..=100.0)))]
    pub target: u32,
    /// Number of jobs that one replica runs at the same time, over all queues.
    #[garde(custom(number_within(1.0..=100_000.0)))]
    pub per_worker: u32,
}
