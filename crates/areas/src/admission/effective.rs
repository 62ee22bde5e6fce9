//! Limits of an area and service type after all inheritance.

use chrono::{DateTime, Utc};
use model::{
    admission::limits::LoyaltyLevel,
    ids::{AreaId, ServiceType},
};
use serde::Serialize;

use crate::{capability::Areas, rules::AdmissionRules};

/// Values in effect now. Each comes from the schedule, the area, the service type or the installation. Source: the
/// requirement on server busy, 3.3 and 4.5.2.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct EffectiveLimits {
    pub max_waiting_orders: i64,
    /// Whether the threshold comes from the schedule.
    pub scheduled: bool,
    /// Time after its creation during which an order counts as waiting.
    pub waiting_timeout_sec: u64,
    pub dispatch_timeout_sec: u64,
    pub order_lifetime_sec: u64,
    pub retry_interval_sec: u64,
    pub busy_retry_interval_sec: u64,
    pub cooldown_period_sec: u64,
    pub low_water_percentage: i64,
    pub bypass_enabled: bool,
    pub bypass_loyalty_levels: Vec<LoyaltyLevel>,
    pub max_bypass_percentage: i64,
    /// Maximum number of scheduled orders with a pickup in the same hour; null: no limit.
    #[schema(required)]
    pub max_scheduled_per_hour: Option<i64>,
    pub enabled: bool,
    /// Priority of the limits. If two are equal, the priorities of the areas decide.
    pub priority: i32,
    /// Time zone of the schedule.
    pub time_zone: &'static str,
}

pub fn resolve_limits(
    areas: &Areas,
    rules: &AdmissionRules,
    area: &AreaId,
    service_type: &ServiceType,
    now: DateTime<Utc>,
) -> EffectiveLimits {
    let limits = rules.limits_at(area, service_type, now);
    let own = rules.durations_for(area, service_type);
    let policy = areas.config.policy_for_type(service_type);
    let zone = rules.geofence.get(area).and_then(|area| area.time_zone).unwrap_or(areas.config.admission.time_zone);
    let lifetime = own.lifetime.unwrap_or(policy.lifetime);
    EffectiveLimits {
        max_waiting_orders: limits.max_waiting,
        scheduled: rules.scheduled_threshold(area, service_type, now).is_some(),
        waiting_timeout_sec: limits.counted_for(lifetime).as_secs(),
        dispatch_timeout_sec: own.attempt.unwrap_or(policy.attempt).as_secs(),
        order_lifetime_sec: lifetime.as_secs(),
        retry_interval_sec: own.retry.unwrap_or_else(|| policy.retry_after(1)).as_secs(),
        busy_retry_interval_sec: limits.busy_retry.as_secs(),
        cooldown_period_sec: limits.cooldown.as_secs(),
        low_water_percentage: limits.low_water_percentage,
        bypass_enabled: limits.bypass_enabled,
        bypass_loyalty_levels: limits.bypass_levels,
        max_bypass_percentage: limits.max_bypass_percentage,
        max_scheduled_per_hour: limits.max_scheduled_per_hour,
        enabled: limits.enabled,
        priority: limits.priority,
        time_zone: zone.name(),
    }
}
