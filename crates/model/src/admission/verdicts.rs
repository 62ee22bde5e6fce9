//! What became of requests for a place, in the words they are counted by, and what another threshold would have made of them.
//! Pure.

use super::{
    decide::{AdmissionRefusal, AdmissionVerdict},
    limits::{AreaLimits, LoyaltyLevel},
};

/// Where a place was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AdmissionSource {
    /// The advice before an order: it takes no place.
    Check,
    /// The creation of an order.
    Create,
}

impl AdmissionSource {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum RefusalCause {
    /// As many orders waited as may wait, or the area cooled down.
    Threshold,
    /// The area takes no orders of the service type.
    Disabled,
    /// An operator forces the area to be busy.
    Forced,
    /// The pickup lies in no area.
    Outside,
    /// Neither Redis nor Postgres could say how many wait.
    Unavailable,
}

impl RefusalCause {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether the caller is answered SERVER_BUSY.
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

/// What became of a request for a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum RequestVerdict {
    Taken,
    /// Taken past the threshold, for loyalty.
    Bypassed,
    /// Taken past the threshold, because shadow mode refuses no request.
    WouldRefuse,
    Refused(RefusalCause),
}

impl RequestVerdict {
    /// The verdict on a request, where shadow mode lets those in that the threshold would refuse.
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

    /// What stood in the way of the request; `None`: nothing did.
    pub fn cause(self) -> Option<RefusalCause> {
        match self {
            Self::Taken => None,
            Self::Bypassed | Self::WouldRefuse => Some(RefusalCause::Threshold),
            Self::Refused(cause) => Some(cause),
        }
    }
}

/// More orders than this never wait in one area.
const MOST_WAITING: i64 = 10_000_000;

/// The number of waiting orders that a request is counted under: exact below 50, then rounded down to 5, from 500 on to 50, and so
/// on. So the requests of an area and an hour are counted under some two hundred numbers at most.
pub fn waiting_level(waiting: i64) -> i64 {
    let waiting = waiting.clamp(0, MOST_WAITING);
    let (mut step, mut end) = (1, 50);
    while waiting >= end {
        step = if step == 1 { 5 } else { step * 10 };
        end *= 10;
    }
    waiting - waiting % step
}

/// Returns whether a request that met so many waiting orders would be refused by this threshold. The cooldown is left aside, and so
/// is what the other threshold would have changed for the requests after it.
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
        assert!(refused(40, explorer, 40), "a level that bypasses nothing");
    }
}
