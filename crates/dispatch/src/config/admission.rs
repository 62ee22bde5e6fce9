//! `[admission]`: limits of areas that have none of their own.

use std::time::Duration;

use model::{
    admission::limits::{AreaLimits, LoyaltyLevel},
    duration,
};
use serde::{Deserialize, Serialize};

use super::Config;

/// Limits of areas that have none of their own.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AdmissionConfig {
    pub max_waiting_orders: i64,
    #[serde(with = "duration")]
    pub cooldown: Duration,
    pub low_water_percentage: i64,
    #[serde(with = "duration")]
    pub busy_retry: Duration,
    pub bypass_enabled: bool,
    pub bypass_loyalty_levels: Vec<LoyaltyLevel>,
    pub max_bypass_percentage: i64,
}

impl AdmissionConfig {
    pub fn default_limits(&self) -> AreaLimits {
        AreaLimits {
            max_waiting: self.max_waiting_orders,
            cooldown: self.cooldown,
            low_water_percentage: self.low_water_percentage,
            busy_retry: self.busy_retry,
            bypass_enabled: self.bypass_enabled,
            bypass_levels: self.bypass_loyalty_levels.clone(),
            max_bypass_percentage: self.max_bypass_percentage,
            enabled: true,
        }
    }
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Config::defaults().admission
    }
}
