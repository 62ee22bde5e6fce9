//! Which channels reach whom, and how often an unanswered alert is told again.

use std::{collections::BTreeMap, time::Duration};

use garde::Validate;
use serde::{Deserialize, Serialize};

use super::{self as messages, MessageAudience};
use crate::{
    bounds::{MS, YEAR, number_within, time_within},
    duration,
    ids::ServiceType,
};

/// The channel that always exists: a line in the worker's log.
pub const LOG: &str = "log";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[serde(default, deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct ChannelRoutes {
    /// Channels that carry offers to drivers, unless their service type has its own.
    #[garde(custom(reach_someone))]
    pub driver: Vec<String>,
    /// Service types whose drivers are reached otherwise; set as `[service_types.NAME] driver_channels`.
    #[serde(skip)]
    pub driver_by_service_type: BTreeMap<ServiceType, Vec<String>>,
    /// Channels of the supporting reservation team.
    #[garde(custom(reach_someone))]
    pub support: Vec<String>,
    /// Channels used for dispatchers when no user with that role exists.
    #[garde(custom(reach_someone))]
    pub dispatchers: Vec<String>,
    /// Channels of the escalation. None: those of support.
    pub escalation: Vec<String>,
    /// Channels of the system that creates orders.
    pub producer: Vec<String>,
    /// Channels that reach customers.
    pub customer: Vec<String>,
    /// Alerts that are not acknowledged; `after` is the SLA.
    #[garde(dive)]
    pub escalate: RepeatSchedule,
    /// Orders that wait for a dispatcher.
    #[garde(dive)]
    pub remind: RepeatSchedule,
}

/// Told again, so many times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct RepeatSchedule {
    /// Until the first time.
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=YEAR)))]
    pub after: Duration,
    /// Between two times.
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=YEAR)))]
    pub every: Duration,
    #[garde(custom(number_within(0.0..=10_000.0)))]
    pub times: u16,
}

/// The rule of routes whose messages a person must get.
fn reach_someone(route: &[String], (): &()) -> garde::Result {
    if route.is_empty() {
        return Err(garde::Error::new("is empty: no one would be told; use [\"log\"] at least"));
    }
    Ok(())
}

impl ChannelRoutes {
    /// The routes by name.
    pub fn named_routes(&self) -> [(&'static str, &Vec<String>); 6] {
        [
            ("driver", &self.driver),
            ("support", &self.support),
            ("dispatchers", &self.dispatchers),
            ("escalation", &self.escalation),
            ("producer", &self.producer),
            ("customer", &self.customer),
        ]
    }

    /// The configured channels of an audience.
    pub fn channels_for(&self, audience: &MessageAudience) -> &[String] {
        match audience {
            MessageAudience::Driver { service_type } => {
                self.driver_by_service_type.get(service_type).unwrap_or(&self.driver)
            }
            MessageAudience::Dispatchers => &self.dispatchers,
            MessageAudience::Escalation if !self.escalation.is_empty() => &self.escalation,
            MessageAudience::Support | MessageAudience::Escalation => &self.support,
            MessageAudience::Producer => &self.producer,
            MessageAudience::Customer => &self.customer,
        }
    }

    /// How an alert of this kind is told again.
    pub fn repeat_schedule(&self, kind: &str) -> &RepeatSchedule {
        if messages::is_for_dispatchers(kind) { &self.remind } else { &self.escalate }
    }
}

impl RepeatSchedule {
    /// How long after the alert, or after the last time, the next one comes; `None` after the last.
    pub fn pause_after(&self, told_again: i32) -> Option<Duration> {
        if told_again >= i32::from(self.times) {
            None
        } else {
            Some(if told_again == 0 { self.after } else { self.every })
        }
    }
}

impl Default for ChannelRoutes {
    fn default() -> Self {
        let log = || vec![LOG.to_owned()];
        let hours = |n: u64| Duration::from_secs(n * 3600);
        Self {
            driver: log(),
            driver_by_service_type: BTreeMap::new(),
            support: log(),
            dispatchers: log(),
            escalation: Vec::new(),
            producer: Vec::new(),
            customer: log(),
            escalate: RepeatSchedule { after: hours(24), every: hours(4), times: 6 },
            remind: RepeatSchedule { after: Duration::from_secs(300), every: Duration::from_secs(300), times: 5 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_is_told_again_so_many_times_and_no_more() {
        let escalate = ChannelRoutes::default().escalate;
        let hours: Vec<_> = (0..8).map(|n| escalate.pause_after(n).map(|d| d.as_secs() / 3600)).collect();
        assert_eq!(hours, [Some(24), Some(4), Some(4), Some(4), Some(4), Some(4), None, None]);
        assert_eq!(RepeatSchedule { times: 0, ..escalate }.pause_after(0), None);
    }

    #[test]
    fn an_escalation_goes_to_support_unless_others_are_named() {
        let mut routes = ChannelRoutes { support: vec!["desk".to_owned()], ..ChannelRoutes::default() };
        assert_eq!(routes.channels_for(&MessageAudience::Escalation), ["desk"]);
        routes.escalation = vec!["manager".to_owned()];
        assert_eq!(routes.channels_for(&MessageAudience::Escalation), ["manager"]);
        assert_eq!(routes.channels_for(&MessageAudience::Support), ["desk"]);
    }
}
