//! `[plans]`: the rate of bulk staff actions.

use garde::Validate;
use model::bounds::number_within;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct PlansConfig {
    /// Number of items of one plan performed per second by all workers together.
    #[garde(custom(number_within(1.0..=1000.0)))]
    pub items_per_second: u32,
}
