//! Channels of each audience, the texts, and the schedule of repeated alerts.

use std::{collections::BTreeMap, time::Duration};

use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};

use super::{
    self as messages, BusinessHours, MessageAudience,
    subscriptions::{ProducerSubscription, Subscriptions},
};
use crate::{
    bounds::{MS, NONE, YEAR, number_within, time_within},
    duration,
    ids::ServiceType,
    texts::TextCatalog,
};

/// The channel that always exists: a line in the worker's log.
pub const LOG: &str = "log";

/// The channel to the browsers of drivers, set as `[push]`. No name in `[channels]` can equal it.
pub const PUSH: &str = "driver:push";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[serde(default, deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct ChannelRoutes {
    /// Channels for offers to drivers, unless the service type has its own.
    #[garde(custom(reach_someone))]
    pub driver: Vec<String>,
    /// Driver channels of single service types; set as `[service_types.NAME] driver_channels`.
    #[serde(skip)]
    pub driver_by_service_type: BTreeMap<ServiceType, Vec<String>>,
    /// Whether offers also go to the browsers of drivers; set as `[push]`.
    #[serde(skip)]
    pub pushes_offers: bool,
    /// Texts for customers; set as `[texts]`.
    #[serde(skip)]
    pub texts: TextCatalog,
    /// Channels of the supporting reservation team.
    #[garde(custom(reach_someone))]
    pub support: Vec<String>,
    /// Channels for dispatchers while no user has that role.
    #[garde(custom(reach_someone))]
    pub dispatchers: Vec<String>,
    /// Channels of the escalation. Empty: those of support.
    pub escalation: Vec<String>,
    /// Channels of the producer that creates orders.
    pub producer: Vec<String>,
    /// Subscriptions of producers to events of their orders: `[producers.NAME]`, and endpoints created by API.
    #[serde(skip)]
    pub subscriptions: Subscriptions,
    pub customer: Vec<String>,
    /// Channels of the people who submit OTPs for bindings. Empty: no messages are sent.
    pub otp: Vec<String>,
    /// Channels of the people who resolve UNRESOLVED transactions. Empty: those of support.
    pub unresolved: Vec<String>,
    /// Time before the end of an alert's SLA at which its desk is warned. Zero: no warning.
    #[serde(with = "duration")]
    #[garde(custom(time_within(NONE..=YEAR)))]
    pub sla_warning: Duration,
    /// Schedule for unacknowledged alerts; `after` is the SLA.
    #[garde(dive)]
    pub escalate: RepeatSchedule,
    /// Hours that count for the SLA and for escalations; `None`: all hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(dive)]
    pub business_hours: Option<BusinessHours>,
    /// Schedule of reminders for orders that wait for a dispatcher.
    #[garde(dive)]
    pub remind: RepeatSchedule,
}

/// Form in which an unacknowledged alert is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertTelling {
    /// A warning to the desk before the SLA ends. The alert is repeated again when it ends.
    Warning { sla_ends_at: DateTime<Utc> },
    /// Repetition `number` (from 1). `next` is the time of the following one; `None` after the last.
    Again { number: i32, next: Option<DateTime<Utc>> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct RepeatSchedule {
    /// Time until the first repetition.
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=YEAR)))]
    pub after: Duration,
    /// Time between two repetitions.
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=YEAR)))]
    pub every: Duration,
    #[garde(custom(number_within(0.0..=10_000.0)))]
    pub times: u16,
}

/// Rejects an empty route if a person must get its messages.
fn reach_someone(route: &[String], (): &()) -> garde::Result {
    if route.is_empty() {
        return Err(garde::Error::new("is empty: no one would be notified; use [\"log\"] at least"));
    }
    Ok(())
}

impl ChannelRoutes {
    pub fn named_routes(&self) -> [(&'static str, &Vec<String>); 8] {
        [
            ("driver", &self.driver),
            ("support", &self.support),
            ("dispatchers", &self.dispatchers),
            ("escalation", &self.escalation),
            ("producer", &self.producer),
            ("customer", &self.customer),
            ("otp", &self.otp),
            ("unresolved", &self.unresolved),
        ]
    }

    /// Returns the endpoints of the owner of an order, if it has any.
    pub fn subscription_of(&self, owner: Option<&str>) -> Option<ProducerSubscription> {
        self.subscriptions.of_producer(owner?)
    }

    pub fn channels_for<'a>(&'a self, audience: &'a MessageAudience) -> &'a [String] {
        match audience {
            MessageAudience::Driver { service_type } => {
                self.driver_by_service_type.get(service_type).unwrap_or(&self.driver)
            }
            MessageAudience::Dispatchers => &self.dispatchers,
            MessageAudience::Escalation if !self.escalation.is_empty() => &self.escalation,
            MessageAudience::UnresolvedDesk if !self.unresolved.is_empty() => &self.unresolved,
            MessageAudience::Support | MessageAudience::Escalation | MessageAudience::UnresolvedDesk => &self.support,
            MessageAudience::Producer => &self.producer,
            MessageAudience::Subscriber { channels } => channels,
            MessageAudience::Customer => &self.customer,
            MessageAudience::OtpDesk => &self.otp,
        }
    }

    /// Returns the end of the SLA of an alert that was raised at `raised_at`.
    pub fn sla_end(&self, raised_at: DateTime<Utc>) -> DateTime<Utc> {
        self.add_desk_time(raised_at, self.escalate.after)
    }

    /// Returns when an alert of this kind is first repeated: at its warning or at the end of its SLA. `None`: never.
    pub fn first_telling(&self, kind: &str, raised_at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if messages::is_for_dispatchers(kind) {
            return self.remind.pause_after(0).map(|pause| raised_at + pause);
        }
        let after = self.escalate.pause_after(0)?;
        let until_warning = after.saturating_sub(self.sla_warning);
        Some(self.add_desk_time(raised_at, if until_warning.is_zero() { after } else { until_warning }))
    }

    /// Returns the form in which an alert of this kind is repeated at `now`, after `told_again` repetitions.
    pub fn next_telling(
        &self,
        kind: &str,
        raised_at: DateTime<Utc>,
        told_again: i32,
        now: DateTime<Utc>,
    ) -> AlertTelling {
        let number = told_again.saturating_add(1);
        if messages::is_for_dispatchers(kind) {
            let next = self.remind.pause_after(number).map(|pause| now + pause);
            return AlertTelling::Again { number, next };
        }
        let sla_ends_at = self.sla_end(raised_at);
        if told_again == 0 && now < sla_ends_at {
            return AlertTelling::Warning { sla_ends_at };
        }
        let next = self.escalate.pause_after(number).map(|pause| self.add_desk_time(now, pause));
        AlertTelling::Again { number, next }
    }

    /// Adds a span that counts only business hours of the support desk.
    fn add_desk_time(&self, from: DateTime<Utc>, span: Duration) -> DateTime<Utc> {
        match &self.business_hours {
            Some(hours) => hours.add_open_time(from, span),
            None => from + span,
        }
    }
}

impl RepeatSchedule {
    /// Returns the pause before the next repetition; `None` after the last.
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
            pushes_offers: false,
            texts: TextCatalog::default(),
            support: log(),
            dispatchers: log(),
            escalation: Vec::new(),
            producer: Vec::new(),
            subscriptions: Subscriptions::default(),
            customer: log(),
            otp: Vec::new(),
            unresolved: Vec::new(),
            sla_warning: hours(4),
            escalate: RepeatSchedule { after: hours(24), every: hours(4), times: 6 },
            business_hours: None,
            remind: RepeatSchedule { after: Duration::from_secs(300), every: Duration::from_secs(300), times: 5 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alert_escalations_are_limited() {
        let escalate = ChannelRoutes::default().escalate;
        let hours: Vec<_> = (0..8).map(|n| escalate.pause_after(n).map(|d| d.as_secs() / 3600)).collect();
        assert_eq!(hours, [Some(24), Some(4), Some(4), Some(4), Some(4), Some(4), None, None]);
        assert_eq!(RepeatSchedule { times: 0, ..escalate }.pause_after(0), None);
    }

    #[test]
    fn escalation_defaults_to_support() {
        let mut routes = ChannelRoutes { support: vec!["desk".to_owned()], ..ChannelRoutes::default() };
        assert_eq!(routes.channels_for(&MessageAudience::Escalation), ["desk"]);
        routes.escalation = vec!["manager".to_owned()];
        assert_eq!(routes.channels_for(&MessageAudience::Escalation), ["manager"]);
        assert_eq!(routes.channels_for(&MessageAudience::Support), ["desk"]);
    }

    #[test]
    fn unresolved_routes_default_to_support_otp_to_none() {
        let mut routes = ChannelRoutes { support: vec!["desk".to_owned()], ..ChannelRoutes::default() };
        assert_eq!(routes.channels_for(&MessageAudience::UnresolvedDesk), ["desk"]);
        assert!(routes.channels_for(&MessageAudience::OtpDesk).is_empty());
        (routes.unresolved, routes.otp) = (vec!["back-office".to_owned()], vec!["phone".to_owned()]);
        assert_eq!(routes.channels_for(&MessageAudience::UnresolvedDesk), ["back-office"]);
        assert_eq!(routes.channels_for(&MessageAudience::OtpDesk), ["phone"]);
    }
}
