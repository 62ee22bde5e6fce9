//! Results of admission requests, as they are counted, and the results that another threshold would have had. Pure.

use super::{
    decide::{AdmissionRefusal, AdmissionVerdict},
    limits::{AreaLimits, LoyaltyLevel},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AdmissionSource {
    /// The check before an order. It takes no place.
    Check,
    Create,
}

impl AdmissionSource {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum RefusalCause {
    /// The maximum number of orders waited, or the area cooled down.
    Threshold,
    /// The area accepts no orders of the service type.
    Disabled,
    /// An operator forced the area to busy.
    Forced,
    Outside,
    /// Neither Redis nor Postgres returned the number of waiting orders.
    Unavailable,
}

impl RefusalCause {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    pub fn is_server_busy(self) -> bool {
        matches!(self, Self::Threshold | Self::Disabled | Self::Forced)
    }
}

impl From<AdmissionRefusal> for RefusalCause {
    fn from(refusal: AdmissionRefusal) -> Self {
        match refusal {
            AdmissionRefusal::Full => Self::Threshold,
            AdmissionRefusal::Disabled => Self::Disabled,
            AdmissionRefusal::Forced => Self::Forced,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum RequestVerdict {
    Taken,
    /// Accepted above the threshold because of the loyalty level.
    Bypassed,
    /// Accepted above the threshold because of shadow mode.
    WouldRefuse,
    Refused(RefusalCause),
}

impl RequestVerdict {
    /// Returns the result of a request. In shadow mode, requests that the threshold would refuse are accepted.
    pub fn new(verdict: AdmissionVerdict, shadow: bool) -> Self {
        match verdict {
            AdmissionVerdict::Taken => Self::Taken,
            AdmissionVerdict::Bypassed => Self::Bypassed,
            AdmissionVerdict::Refused(AdmissionRefusal::Full) if shadow => Self::WouldRefuse,
            AdmissionVerdict::Refused(refusal) => Self::Refused(refusal.into()),
        }
    }

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the obstacle to the request; `None` if there was none.
    pub fn cause(self) -> Option<RefusalCause> {
        match self {
            Self::Taken => None,
            Self::Bypassed | Self::WouldRefuse => Some(RefusalCause::Threshold),
            Self::Refused(cause) => Some(cause),
        }
    }
}

/// Upper limit for the counted number of waiting orders in one area.
const MOST_WAITING: i64 = 10_000_000;

/// Returns the bucket for a number of waiting orders: exact below 50, then rounded down to a multiple of 5, from 500 to
/// a multiple of 50, and so on. The requests of an area and an hour therefore have at most about two hundred buckets.
pub fn waiting_level(waiting: i64) -> i64 {
    let waiting = waiting.clamp(0, MOST_WAITING);
    let (mut step, mut end) = (1, 50);
    while waiting >= end {
        step = if step == 1 { 5 } else { step * 10 };
        end *= 10;
    }
    waiting - waiting % step
}

/// Returns whether this threshold would refuse a request that met this many waiting orders. Ignores the cooldown, and
/// the effect of the other threshold on later requests.
pub fn is_refused_at(threshold: i64, limits: &AreaLimits, loyalty: Option<LoyaltyLevel>, waiting: i64) -> bool {
    let limits = AreaLimits { max_waiting: threshold, ..limits.clone() };
    waiting >= waiting_level(if limits.may_bypass(loyalty) { limits.max_with_bypass() } else { threshold })
}

#[cfg(test)]
mod tests {
    use super::{super::limits::fixture::example_limits, *};

    #[test]
    fn shadow_mode_admits_only_threshold_refusals() {
        let refused = AdmissionVerdict::Refused;
        for (verdict, shadow, expected) in [
            (AdmissionVerdict::Taken, true, ("TAKEN", None)),
            (AdmissionVerdict::Bypassed, true, ("BYPASSED", Some("threshold"))),
            (refused(AdmissionRefusal::Full), true, ("WOULD_REFUSE", Some("threshold"))),
            (refused(AdmissionRefusal::Full), false, ("REFUSED", Some("threshold"))),
            (refused(AdmissionRefusal::Forced), true, ("REFUSED", Some("forced"))),
            (refused(AdmissionRefusal::Disabled), true, ("REFUSED", Some("disabled"))),
        ] {
            let became = RequestVerdict::new(verdict, shadow);
            assert_eq!((became.as_str(), became.cause().map(RefusalCause::as_str)), expected, "{verdict:?}, {shadow}");
        }
    }

    #[test]
    fn waiting_levels_are_exact_while_few_wait() {
        let levels = [0, 49, 50, 54, 99, 499, 500, 549, 4_999, 5_499].map(waiting_level);
        assert_eq!(levels, [0, 49, 50, 50, 95, 495, 500, 500, 4_950, 5_000]);
        let mut before = 0;
        for waiting in 0..20_000 {
            let level = waiting_level(waiting);
            assert!(before <= level && level <= waiting && waiting_level(level) == level, "{waiting}: {level}");
            before = level;
        }
        assert_eq!(waiting_level(i64::MAX), MOST_WAITING);
    }

    #[test]
    fn other_threshold_refuses_loyal_customers_later() {
        let refused = |threshold, loyalty, waiting| is_refused_at(threshold, &example_limits(), loyalty, waiting);
        assert_eq!([39, 40, 47, 48].map(|waiting| refused(40, None, waiting)), [false, true, true, true]);
        let elite = Some(LoyaltyLevel::Elite);
        assert_eq!([39, 40, 47, 48].map(|waiting| refused(40, elite, waiting)), [false, false, false, true]);
        let explorer = Some(LoyaltyLevel::Explorer);
        assert!(refused(40, explorer, 40), "this level does not bypass");
    }
}
