//! Decides whether an area accepts another order. Pure. Design: docs/design/admission.md.
//!
//! The checks run in this order: disabled area, status forced by a person, flag of the request, threshold, bypass for
//! loyal customers. The first two are for emergencies, so they apply whatever the flag is. Source: the requirement on
//! server busy, 3.4.2, 4.5.5, appendix B.

use chrono::{DateTime, TimeDelta, Utc};

use serde::Serialize;

use super::limits::{AdmissionFlag, AreaLimits, AreaOverride, ForcedStatus, LoyaltyLevel, ThresholdEnforcement};
use crate::ids::AreaId;

/// The caller of an admission request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AdmissionCaller<'a> {
    pub channel: Option<&'a str>,
    pub user: Option<&'a str>,
    /// Loyalty level; `None` if absent or unknown.
    pub loyalty: Option<LoyaltyLevel>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AreaLoad {
    pub waiting: i64,
    /// Time when the area became full, while it still counts as busy.
    pub busy_since: Option<DateTime<Utc>>,
}

/// Rules for one area and service type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AreaTerms<'a> {
    pub area: &'a AreaId,
    pub limits: &'a AreaLimits,
    pub forced: Option<&'a AreaOverride>,
    pub flag: &'a AdmissionFlag,
}

/// Result of the rules for a caller, before orders are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionGate {
    /// Every request is accepted and counted.
    Open,
    Closed(AdmissionRefusal),
    /// The count decides. A request is accepted while fewer than `threshold` orders wait, or fewer than `with_bypass`
    /// for a loyal caller.
    Counted {
        threshold: i64,
        with_bypass: Option<i64>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionRefusal {
    Disabled,
    Forced,
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionVerdict {
    Taken,
    /// Accepted above the threshold because of the loyalty level.
    Bypassed,
    Refused(AdmissionRefusal),
}

/// A gate, and whether its threshold only records what it would refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionRule {
    pub gate: AdmissionGate,
    /// Only applies to a gate that counts. A disabled or forced area refuses in shadow mode too.
    pub shadow: bool,
}

pub fn rule_for_caller(terms: AreaTerms<'_>, asker: AdmissionCaller<'_>, now: DateTime<Utc>) -> AdmissionRule {
    let forced = terms.forced.filter(|forced| forced.is_in_force(now)).map(|forced| forced.status);
    let gate = match forced {
        _ if !terms.limits.enabled => AdmissionGate::Closed(AdmissionRefusal::Disabled),
        Some(ForcedStatus::ForceBusy) => AdmissionGate::Closed(AdmissionRefusal::Forced),
        Some(ForcedStatus::ForceAvailable) => AdmissionGate::Open,
        None if !terms.flag.applies_to(Some(terms.area), asker.channel, asker.user) => AdmissionGate::Open,
        None => AdmissionGate::Counted {
            threshold: terms.limits.max_waiting,
            with_bypass: terms.limits.may_bypass(asker.loyalty).then(|| terms.limits.max_with_bypass()),
        },
    };
    AdmissionRule { gate, shadow: terms.flag.shadow_mode && matches!(gate, AdmissionGate::Counted { .. }) }
}

/// Decides on another order, by the gate and the load of the area.
pub fn decide_admission(
    gate: AdmissionGate,
    limits: &AreaLimits,
    standing: AreaLoad,
    now: DateTime<Utc>,
) -> AdmissionVerdict {
    match gate {
        AdmissionGate::Open => AdmissionVerdict::Taken,
        AdmissionGate::Closed(why) => AdmissionVerdict::Refused(why),
        AdmissionGate::Counted { threshold, .. }
            if standing.waiting < threshold && !is_cooling(limits, standing, now) =>
        {
            AdmissionVerdict::Taken
        }
        AdmissionGate::Counted { with_bypass: Some(most), .. } if standing.waiting < most => AdmissionVerdict::Bypassed,
        AdmissionGate::Counted { .. } => AdmissionVerdict::Refused(AdmissionRefusal::Full),
    }
}

/// Returns whether an area that was full still counts as busy. It does for at least its cooldown, and until few enough
/// orders wait. This keeps its state from flapping.
pub fn is_cooling(limits: &AreaLimits, standing: AreaLoad, now: DateTime<Utc>) -> bool {
    standing.busy_since.is_some_and(|since| {
        let cooldown = TimeDelta::from_std(limits.cooldown).unwrap_or(TimeDelta::MAX);
        now < since + cooldown || standing.waiting >= limits.low_water()
    })
}

/// Reason why an area accepts no orders of a service type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, utoipa::ToSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AreaRefusal {
    Disabled,
    /// A person forced the status to busy.
    Forced,
    /// The maximum number of orders wait.
    Threshold,
    /// The area was full, and its cooldown has not ended or its low water mark is not reached.
    Cooling,
}

impl AreaRefusal {
    pub const ALL: [Self; 4] = [Self::Disabled, Self::Forced, Self::Threshold, Self::Cooling];

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Returns why an area accepts no orders now. `None`: it accepts them, or its threshold is not enforced. A loyal
/// customer may still pass the threshold. A threshold enforced for some users counts as enforced.
pub fn find_refusal(terms: AreaTerms<'_>, standing: AreaLoad, now: DateTime<Utc>) -> Option<AreaRefusal> {
    let forced = terms.forced.filter(|forced| forced.is_in_force(now)).map(|forced| forced.status);
    let is_enforced =
        matches!(terms.flag.enforcement_in(terms.area), ThresholdEnforcement::On | ThresholdEnforcement::Partly);
    match forced {
        _ if !terms.limits.enabled => Some(AreaRefusal::Disabled),
        Some(ForcedStatus::ForceBusy) => Some(AreaRefusal::Forced),
        Some(ForcedStatus::ForceAvailable) => None,
        None if !is_enforced => None,
        None if standing.waiting >= terms.limits.max_waiting => Some(AreaRefusal::Threshold),
        None => is_cooling(terms.limits, standing, now).then_some(AreaRefusal::Cooling),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::limits::fixture::example_limits, *};

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    fn on() -> AdmissionFlag {
        AdmissionFlag { enabled: true, ..AdmissionFlag::default() }
    }

    fn forced(status: ForcedStatus, expires_in: Option<i64>) -> AreaOverride {
        AreaOverride {
            area_id: "JKT".into(),
            status,
            reason: "Banjir di area".to_owned(),
            expires_at: expires_in.map(|secs| now() + TimeDelta::seconds(secs)),
            actor: "operator:x".to_owned(),
        }
    }

    fn decide(
        limits: &AreaLimits,
        over: Option<&AreaOverride>,
        flag: &AdmissionFlag,
        loyalty: Option<LoyaltyLevel>,
        waiting: i64,
        busy_for: Option<i64>,
    ) -> (AdmissionVerdict, bool) {
        let asker = AdmissionCaller { loyalty, ..AdmissionCaller::default() };
        let rule = rule_for_caller(AreaTerms { area: &"JKT".into(), limits, forced: over, flag }, asker, now());
        let standing = AreaLoad { waiting, busy_since: busy_for.map(|secs| now() - TimeDelta::seconds(secs)) };
        (decide_admission(rule.gate, limits, standing, now()), rule.shadow)
    }

    #[test]
    fn decision_follows_the_requirement() {
        use AdmissionVerdict::{Bypassed, Taken};
        let full = AdmissionVerdict::Refused(AdmissionRefusal::Full);
        let (elite, voyager) = (Some(LoyaltyLevel::Elite), Some(LoyaltyLevel::Voyager));
        let (traveler, explorer) = (Some(LoyaltyLevel::Traveler), Some(LoyaltyLevel::Explorer));
        for (waiting, loyalty, expected) in [
            (0, None, Taken),
            (45, elite, Taken),
            (99, None, Taken),
            (100, None, full),
            (105, None, full),
            (100, traveler, full),
            (100, explorer, full),
            (100, voyager, Bypassed),
            (105, voyager, Bypassed),
            (119, elite, Bypassed),
            (120, elite, full),
            (125, voyager, full),
        ] {
            let (verdict, _) = decide(&example_limits(), None, &on(), loyalty, waiting, None);
            assert_eq!(verdict, expected, "{waiting} waiting, {loyalty:?}");
        }
    }

    #[test]
    fn disabled_bypass_or_flag_has_no_effect() {
        let strict = AreaLimits { bypass_enabled: false, ..example_limits() };
        let (elite, full) = (Some(LoyaltyLevel::Elite), AdmissionVerdict::Refused(AdmissionRefusal::Full));
        assert_eq!(decide(&strict, None, &on(), elite, 100, None).0, full);
        assert_eq!(
            decide(&example_limits(), None, &AdmissionFlag::default(), None, 1_000, None).0,
            AdmissionVerdict::Taken
        );
    }

    #[test]
    fn override_and_disable_apply_without_flag() {
        let refused = AdmissionVerdict::Refused;
        let closed = AreaLimits { enabled: false, ..example_limits() };
        let (busy, free) = (forced(ForcedStatus::ForceBusy, None), forced(ForcedStatus::ForceAvailable, None));
        for flag in [
            AdmissionFlag::default(),
            AdmissionFlag { shadow_mode: true, ..on() },
            AdmissionFlag { percentage: 0, ..on() },
            AdmissionFlag { enabled_areas: vec!["BDG".into()], ..on() },
            AdmissionFlag { enabled_channels: vec!["WEB".to_owned()], ..on() },
            on(),
        ] {
            let decide =
                |limits: &AreaLimits, over: Option<&AreaOverride>| decide(limits, over, &flag, None, 500, None);
            assert_eq!(decide(&example_limits(), Some(&busy)), (refused(AdmissionRefusal::Forced), false), "{flag:?}");
            assert_eq!(decide(&closed, Some(&free)), (refused(AdmissionRefusal::Disabled), false), "{flag:?}");
            assert_eq!(decide(&example_limits(), Some(&free)), (AdmissionVerdict::Taken, false), "{flag:?}");
        }
    }

    // Rule L6: An area refuses because it is disabled, forced busy, full (a threshold of 0 is always full) or cooling
    // down.
    #[test]
    fn refusing_area_names_its_cause() {
        let shadow = AdmissionFlag { shadow_mode: true, ..on() };
        let part = AdmissionFlag { percentage: 5, ..on() };
        let (busy, free) = (forced(ForcedStatus::ForceBusy, None), forced(ForcedStatus::ForceAvailable, None));
        let ended = forced(ForcedStatus::ForceBusy, Some(0));
        let closed = AreaLimits { enabled: false, ..example_limits() };
        let zero = AreaLimits { max_waiting: 0, ..example_limits() };
        let usual = example_limits();
        for (limits, over, flag, waiting, busy_for, cause) in [
            (&usual, None, on(), 99, None, None),
            (&usual, None, on(), 100, None, Some(AreaRefusal::Threshold)),
            (&usual, None, part.clone(), 100, None, Some(AreaRefusal::Threshold)),
            (&usual, None, shadow.clone(), 100, None, None),
            (&usual, None, AdmissionFlag::default(), 100, None, None),
            (&usual, None, on(), 50, Some(59), Some(AreaRefusal::Cooling)),
            (&usual, None, on(), 90, Some(600), Some(AreaRefusal::Cooling)),
            (&usual, None, on(), 50, Some(60), None),
            (&usual, None, shadow.clone(), 50, Some(1), None),
            (&zero, None, on(), 0, None, Some(AreaRefusal::Threshold)),
            (&usual, Some(&busy), shadow, 0, None, Some(AreaRefusal::Forced)),
            (&usual, Some(&ended), on(), 0, None, None),
            (&usual, Some(&free), on(), 500, Some(1), None),
            (&closed, Some(&free), AdmissionFlag::default(), 0, None, Some(AreaRefusal::Disabled)),
        ] {
            let terms = AreaTerms { area: &"JKT".into(), limits, forced: over, flag: &flag };
            let standing = AreaLoad { waiting, busy_since: busy_for.map(|secs| now() - TimeDelta::seconds(secs)) };
            assert_eq!(find_refusal(terms, standing, now()), cause, "{waiting} of {limits:?}, {busy_for:?}, {flag:?}");
        }
    }

    #[test]
    fn shadow_mode_keeps_the_same_decision() {
        let shadow = AdmissionFlag { shadow_mode: true, ..on() };
        let full = AdmissionVerdict::Refused(AdmissionRefusal::Full);
        assert_eq!(decide(&example_limits(), None, &shadow, None, 100, None), (full, true));
        assert_eq!(decide(&example_limits(), None, &on(), None, 100, None), (full, false));
    }

    #[test]
    fn override_holds_until_it_expires() {
        let busy = forced(ForcedStatus::ForceBusy, Some(60));
        assert_eq!(
            decide(&example_limits(), Some(&busy), &on(), None, 0, None).0,
            AdmissionVerdict::Refused(AdmissionRefusal::Forced)
        );
        let elite = Some(LoyaltyLevel::Elite);
        assert_eq!(
            decide(&example_limits(), Some(&busy), &on(), elite, 0, None).0,
            AdmissionVerdict::Refused(AdmissionRefusal::Forced)
        );
        let over = forced(ForcedStatus::ForceBusy, Some(0));
        assert_eq!(decide(&example_limits(), Some(&over), &on(), None, 0, None).0, AdmissionVerdict::Taken);
        let free = forced(ForcedStatus::ForceAvailable, None);
        assert_eq!(decide(&example_limits(), Some(&free), &on(), None, 500, None).0, AdmissionVerdict::Taken);
        let closed = AreaLimits { enabled: false, ..example_limits() };
        assert_eq!(
            decide(&closed, Some(&free), &on(), None, 0, None).0,
            AdmissionVerdict::Refused(AdmissionRefusal::Disabled)
        );
    }

    #[test]
    fn full_area_reopens_below_low_water_mark() {
        let full = AdmissionVerdict::Refused(AdmissionRefusal::Full);
        for (waiting, busy_for, expected) in [
            (50, Some(59), full),
            (50, Some(60), AdmissionVerdict::Taken),
            (90, Some(600), full),
            (89, Some(600), AdmissionVerdict::Taken),
            (89, None, AdmissionVerdict::Taken),
        ] {
            let (verdict, _) = decide(&example_limits(), None, &on(), None, waiting, busy_for);
            assert_eq!(verdict, expected, "{waiting} waiting, busy for {busy_for:?}");
        }
        let elite = Some(LoyaltyLevel::Elite);
        assert_eq!(decide(&example_limits(), None, &on(), elite, 50, Some(1)).0, AdmissionVerdict::Bypassed);
    }
}
