//! `[dispatch]` and `[service_types]`: durations and options of dispatch.

use std::time::Duration;

use garde::Validate;
use model::{
    bounds::{MS, NONE, YEAR, number_within, time_within},
    distance, duration,
    ids::{PartnerName, ServiceType},
    order::Order,
    partner::choice::ListedPartner,
    policy::{DispatchPolicy, ExhaustionAction, Wave},
    ranking::RankingWeights,
    schedule::SchedulePolicy,
};
use serde::{Deserialize, Serialize};

use super::Config;

#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct DispatchConfig {
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=YEAR)))]
    pub attempt: Duration,
    #[serde(with = "duration::list")]
    #[garde(custom(time_within(MS..=YEAR)))]
    pub retry: Vec<Duration>,
    #[serde(with = "duration")]
    #[garde(custom(time_within(MS..=YEAR)))]
    pub lifetime: Duration,
    #[garde(custom(number_within(1.0..=20_100_000.0)))]
    pub radius_m: f64,
    #[garde(custom(number_within(1.0..=10_000.0)))]
    pub candidates: u16,
    #[garde(custom(number_within(1.0..=500.0)))]
    pub ask_at_once: u16,
    #[garde(custom(number_within(1.0..=100.0)))]
    pub offers_per_driver: u16,
    #[serde(with = "duration")]
    #[garde(custom(time_within(NONE..=YEAR)))]
    pub cool_down: Duration,
    #[garde(custom(number_within(0.0..=20_100_000.0)))]
    pub idle_minute_m: f64,
    #[garde(custom(number_within(0.0..=20_100_000.0)))]
    pub live_offer_m: f64,
    #[garde(skip)]
    pub exhausted: ExhaustionAction,
    #[garde(skip)]
    pub pending_keeps_lifetime: bool,
    #[serde(with = "duration")]
    #[garde(custom(time_within(NONE..=YEAR)))]
    pub pickup_within: Duration,
    #[serde(with = "duration")]
    #[garde(custom(time_within(NONE..=YEAR)))]
    pub completion_within: Duration,
    #[serde(with = "duration")]
    #[garde(custom(time_within(NONE..=YEAR)))]
    pub lead: Duration,
    #[serde(with = "duration")]
    #[garde(custom(time_within(NONE..=YEAR)))]
    pub warn_before: Duration,
    #[garde(custom(number_within(0.0..=365.0)))]
    pub max_days_ahead: u16,
}

/// One entry of `[[service_types.NAME.waves]]`. Rules between waves are in `rules`.
#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct WaveConfig {
    /// Number of drivers that the wave asks, in addition to those of earlier waves.
    #[garde(custom(number_within(1.0..=500.0)))]
    pub ask: u16,
    /// Maximum distance of a driver from the pickup, in metres.
    #[serde(with = "distance")]
    #[garde(custom(number_within(1.0..=20_100_000.0)))]
    pub within: f64,
    /// Time until the next wave. The last wave may omit it, because it lasts until the attempt's deadline.
    #[serde(rename = "for", default, with = "duration::option", skip_serializing_if = "Option::is_none")]
    #[garde(skip)]
    pub lasts: Option<Duration>,
}

impl WaveConfig {
    fn to_wave(&self) -> Wave {
        Wave { ask: self.ask, radius_m: self.within, lasts: self.lasts.unwrap_or_default() }
    }
}

/// Settings of a service type that replace those of `[dispatch]`.
#[derive(Debug, Clone, Default, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct DispatchOverrides {
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    #[garde(custom(time_within(MS..=YEAR)))]
    pub attempt: Option<Duration>,
    #[serde(with = "duration::option_list", skip_serializing_if = "Option::is_none")]
    #[garde(custom(time_within(MS..=YEAR)))]
    pub retry: Option<Vec<Duration>>,
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    #[garde(custom(time_within(MS..=YEAR)))]
    pub lifetime: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(custom(number_within(1.0..=20_100_000.0)))]
    pub radius_m: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(custom(number_within(1.0..=10_000.0)))]
    pub candidates: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(custom(number_within(1.0..=500.0)))]
    pub ask_at_once: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(custom(number_within(1.0..=100.0)))]
    pub offers_per_driver: Option<u16>,
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    #[garde(custom(time_within(NONE..=YEAR)))]
    pub cool_down: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(custom(number_within(0.0..=20_100_000.0)))]
    pub idle_minute_m: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(custom(number_within(0.0..=20_100_000.0)))]
    pub live_offer_m: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(skip)]
    pub exhausted: Option<ExhaustionAction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(skip)]
    pub pending_keeps_lifetime: Option<bool>,
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    #[garde(custom(time_within(NONE..=YEAR)))]
    pub pickup_within: Option<Duration>,
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    #[garde(custom(time_within(NONE..=YEAR)))]
    pub completion_within: Option<Duration>,
    /// Waves of an attempt, in the place of `ask_at_once` and `radius_m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(dive)]
    pub waves: Option<Vec<WaveConfig>>,
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    #[garde(custom(time_within(NONE..=YEAR)))]
    pub lead: Option<Duration>,
    /// Partner that finds the driver; `None` for our own fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(skip)]
    pub partner: Option<PartnerName>,
    /// Partners that find the driver, chosen by their shares or in this order of preference.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(dive)]
    pub partners: Option<Vec<ListedPartner>>,
    /// Channels to its drivers, in the place of `notifications.driver`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[garde(custom(reach_drivers))]
    pub driver_channels: Option<Vec<String>>,
}

/// Rejects an empty list of channels to drivers.
fn reach_drivers(channels: &Option<Vec<String>>, (): &()) -> garde::Result {
    match channels {
        Some(channels) if channels.is_empty() => Err(garde::Error::new("is empty: no driver would be notified")),
        _ => Ok(()),
    }
}

impl DispatchOverrides {
    /// Returns the partners that find the driver; empty for our own fleet.
    pub fn listed_partners(&self) -> Vec<ListedPartner> {
        match (&self.partners, &self.partner) {
            (Some(listed), _) => listed.clone(),
            (None, Some(partner)) => vec![partner.clone().into()],
            (None, None) => Vec::new(),
        }
    }
}

impl Config {
    /// Returns the first partner of this service type; `None` for our own fleet.
    pub fn partner_of(&self, service_type: &ServiceType) -> Option<PartnerName> {
        let own = self.service_types.get(service_type)?;
        own.listed_partners().into_iter().next().map(|listed| listed.name)
    }

    /// Returns the partners for the next attempt of a partner's order. If its service type no longer names partners,
    /// the order keeps its own.
    pub fn partners_of_order(&self, order: &Order) -> Vec<ListedPartner> {
        let own = self.service_types.get(&order.service_type);
        let listed = own.map(DispatchOverrides::listed_partners).unwrap_or_default();
        if listed.is_empty() { order.partner.clone().map(ListedPartner::from).into_iter().collect() } else { listed }
    }

    /// Returns whether a driver may have live offers of several orders.
    pub fn allows_several_offers(&self) -> bool {
        let own = self.service_types.values().filter_map(|own| own.offers_per_driver);
        own.chain([self.dispatch.offers_per_driver]).any(|most| most > 1)
    }

    /// Returns the settings for orders with a pickup time. The partner that is chosen at the start of dispatch must accept
    /// the booking, so the shortest lead of the listed partners applies.
    pub fn schedule_policy(&self, service_type: &ServiceType) -> SchedulePolicy {
        let base = &self.dispatch;
        let own = self.service_types.get(service_type);
        let usual = own.and_then(|own| own.lead).unwrap_or(base.lead);
        let listed = own.map(DispatchOverrides::listed_partners).unwrap_or_default();
        let lead_at = |partner: &ListedPartner| self.partners.get(&partner.name).and_then(|partner| partner.lead);
        let lead = listed.iter().map(|partner| lead_at(partner).unwrap_or(usual)).min();
        SchedulePolicy {
            lead: lead.unwrap_or(usual),
            warn_before: base.warn_before,
            max_days_ahead: base.max_days_ahead,
        }
    }

    /// Returns the durations and options of a service type. A type that is no longer configured uses the defaults.
    pub fn policy_for_type(&self, service_type: &ServiceType) -> DispatchPolicy {
        let base = &self.dispatch;
        let own = self.service_types.get(service_type).cloned().unwrap_or_default();
        DispatchPolicy {
            attempt: own.attempt.unwrap_or(base.attempt),
            retry: own.retry.unwrap_or_else(|| base.retry.clone()),
            lifetime: own.lifetime.unwrap_or(base.lifetime),
            waves: match &own.waves {
                Some(waves) => waves.iter().map(WaveConfig::to_wave).collect(),
                None => vec![Wave {
                    ask: own.ask_at_once.unwrap_or(base.ask_at_once),
                    radius_m: own.radius_m.unwrap_or(base.radius_m),
                    lasts: Duration::ZERO,
                }],
            },
            candidates: own.candidates.unwrap_or(base.candidates),
            offers_per_driver: own.offers_per_driver.unwrap_or(base.offers_per_driver),
            cool_down: own.cool_down.unwrap_or(base.cool_down),
            weights: RankingWeights {
                idle_minute_m: own.idle_minute_m.unwrap_or(base.idle_minute_m),
                live_offer_m: own.live_offer_m.unwrap_or(base.live_offer_m),
            },
            exhausted: own.exhausted.unwrap_or(base.exhausted),
            pending_keeps_lifetime: own.pending_keeps_lifetime.unwrap_or(base.pending_keeps_lifetime),
            pickup_within: own.pickup_within.unwrap_or(base.pickup_within),
            completion_within: own.completion_within.unwrap_or(base.completion_within),
        }
    }
}
