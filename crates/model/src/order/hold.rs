//! Reason for a hold.

use job_contract::JobId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Reason why an order is under review, for decisions. `held_reason` is the text for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Value", into = "Value")]
pub enum HoldCause {
    /// This job of the order is dead. The review ends when the job is requeued.
    DeadTimer(JobId),
    /// The rules do not know the payment status. The next payment event ends the review.
    UnknownPayment,
    /// A partner carries out an attempt that the order has abandoned.
    UnwantedTrip,
    /// A partner ended the trip after pickup. Its completion ends the review.
    BrokenTrip,
    /// Staff stopped the order. It continues when staff resume it or make another decision on it.
    ByHand,
    /// A cause that a newer version wrote. A person decides.
    Other,
}

impl HoldCause {
    /// Returns the text for people about the review of a dead timer.
    pub fn dead_timer_reason(job: &JobId) -> String {
        format!("its timer {job} is dead; see: dispatchq dead show {job}")
    }
}

impl From<HoldCause> for Value {
    fn from(cause: HoldCause) -> Self {
        match cause {
            HoldCause::DeadTimer(job) => json!({ "kind": "dead_timer", "job": job.as_str() }),
            HoldCause::UnknownPayment => json!({ "kind": "unknown_payment" }),
            HoldCause::UnwantedTrip => json!({ "kind": "unwanted_trip" }),
            HoldCause::BrokenTrip => json!({ "kind": "broken_trip" }),
            HoldCause::ByHand => json!({ "kind": "by_hand" }),
            HoldCause::Other => json!({ "kind": "other" }),
        }
    }
}

impl From<Value> for HoldCause {
    fn from(stored: Value) -> Self {
        match stored["kind"].as_str() {
            Some("dead_timer") => {
                stored["job"].as_str().and_then(|job| JobId::parse(job).ok()).map_or(Self::Other, Self::DeadTimer)
            }
            Some("unknown_payment") => Self::UnknownPayment,
            Some("unwanted_trip") => Self::UnwantedTrip,
            Some("broken_trip") => Self::BrokenTrip,
            Some("by_hand") => Self::ByHand,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::order::fixture;

    fn timer() -> JobId {
        JobId::parse("dispatch:ORD-1:1").unwrap()
    }

    #[test]
    fn a_cause_is_read_as_it_is_written() {
        for cause in [
            HoldCause::DeadTimer(timer()),
            HoldCause::UnknownPayment,
            HoldCause::UnwantedTrip,
            HoldCause::BrokenTrip,
            HoldCause::ByHand,
            HoldCause::Other,
        ] {
            let stored = serde_json::to_value(&cause).unwrap();
            assert_eq!(serde_json::from_value::<HoldCause>(stored).unwrap(), cause);
        }
    }

    #[test]
    fn unknown_hold_cause_parses_as_other() {
        for stored in [json!({ "kind": "flood" }), json!({ "kind": "dead_timer" }), json!({}), json!("dead_timer")] {
            assert_eq!(serde_json::from_value::<HoldCause>(stored.clone()).unwrap(), HoldCause::Other, "{stored}");
        }
    }

    #[test]
    fn cause_alone_names_the_dead_timer() {
        let sentence = HoldCause::dead_timer_reason(&timer());
        let dead_timer = |held, cause: Option<HoldCause>, reason: &str| {
            let mut order = fixture::created_snapshot().order;
            (order.held_for_review, order.hold_cause, order.held_reason) = (held, cause, Some(reason.to_owned()));
            order.dead_timer()
        };
        assert_eq!(dead_timer(true, Some(HoldCause::DeadTimer(timer())), "reworded"), Some(timer()));
        assert_eq!(dead_timer(true, Some(HoldCause::UnknownPayment), &sentence), None);
        assert_eq!(dead_timer(true, None, &sentence), None);
        assert_eq!(dead_timer(false, Some(HoldCause::DeadTimer(timer())), &sentence), None);
    }
}
