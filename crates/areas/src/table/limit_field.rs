//! Fields of limits that can be reset to the installation's value.

use std::{fmt, str::FromStr};

/// A field of an area's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitField {
    MaxWaitingOrders,
    WaitingTimeout,
    DispatchTimeout,
    OrderLifetime,
    RetryInterval,
    BusyRetryInterval,
    CooldownPeriod,
    LowWaterPercentage,
    BypassEnabled,
    BypassLoyaltyLevels,
    MaxBypassPercentage,
    MaxScheduledPerHour,
    Schedule,
    Enabled,
    Priority,
}

/// Error for a name that is not a limit field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a limit that can be inherited")]
pub struct UnknownLimit(String);

impl LimitField {
    pub const ALL: [Self; 15] = [
        Self::MaxWaitingOrders,
        Self::WaitingTimeout,
        Self::DispatchTimeout,
        Self::OrderLifetime,
        Self::RetryInterval,
        Self::BusyRetryInterval,
        Self::CooldownPeriod,
        Self::LowWaterPercentage,
        Self::BypassEnabled,
        Self::BypassLoyaltyLevels,
        Self::MaxBypassPercentage,
        Self::MaxScheduledPerHour,
        Self::Schedule,
        Self::Enabled,
        Self::Priority,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxWaitingOrders => "max_waiting_orders",
            Self::WaitingTimeout => "waiting_timeout_sec",
            Self::DispatchTimeout => "dispatch_timeout_sec",
            Self::OrderLifetime => "order_lifetime_sec",
            Self::RetryInterval => "retry_interval_sec",
            Self::BusyRetryInterval => "busy_retry_interval_sec",
            Self::CooldownPeriod => "cooldown_period_sec",
            Self::LowWaterPercentage => "low_water_percentage",
            Self::BypassEnabled => "bypass_enabled",
            Self::BypassLoyaltyLevels => "bypass_loyalty_levels",
            Self::MaxBypassPercentage => "max_bypass_percentage",
            Self::MaxScheduledPerHour => "max_scheduled_per_hour",
            Self::Schedule => "schedule",
            Self::Enabled => "enabled",
            Self::Priority => "priority",
        }
    }
}

impl fmt::Display for LimitField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for LimitField {
    type Err = UnknownLimit;

    /// Parses the field's name in JSON or the name of the command-line option.
    fn from_str(text: &str) -> Result<Self, UnknownLimit> {
        let name = text.replace('-', "_");
        let found = Self::ALL.into_iter().find(|field| field.as_str() == name);
        found.ok_or_else(|| UnknownLimit(text.to_owned()))
    }
}
