//! `[admission]`: limits of areas without their own.

use std::time::Duration;

use garde::Validate;
use model::{
    admission::{
        limits::{AreaLimits, LoyaltyLevel},
        schedule::AreaTimeZone,
    },
    bounds::{MS, NONE, YEAR, number_within, time_within},
    duration,
};
use serde::{Deserialize, Serialize};

use super::Config;

#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct AdmissionConfig {
    #[garde(custom(number_within(0.0..=1_000_000.0)))]
    pub max_waiting_orders: i64,
    #[serde(with = "duration")]
    #[garde(custom(time_within(NONE..=YEAR)))]
    pub cooldown: Duration,
    #[garde(custom(number_within(1.0..=100.0)))]
    pub low_water_percentage: i64,
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=YEAR)))]
    pub busy_retry: Duration,
    #[garde(skip)]
    pub bypass_enabled: bool,
    #[garde(skip)]
    pub bypass_loyalty_levels: Vec<LoyaltyLevel>,
    #[garde(custom(number_within(0.0..=1_000.0)))]
    pub max_bypass_percentage: i64,
    /// Time zone of areas without their own.
    #[garde(skip)]
    pub time_zone: AreaTimeZone,
}

impl AdmissionConfig {
    pub fn default_limits(&self) -> AreaLimits {
        AreaLimits {
            max_waiting: self.max_waiting_orders,
            waiting_window: None,
            cooldown: self.cooldown,
            low_water_percentage: self.low_water_percentage,
            busy_retry: self.busy_retry,
            bypass_enabled: self.bypass_enabled,
            bypass_levels: self.bypass_loyalty_levels.clone(),
            max_bypass_percentage: self.max_bypass_percentage,
            max_scheduled_per_hour: None,
            enabled: true,
            priority: 0,
        }
    }
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Config::defaults().admission
    }
}
