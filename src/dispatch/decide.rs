//! What an attempt's start, its timeout and the end of the lifetime lead to. Pure.

use chrono::TimeDelta;
use uuid::Uuid;

use super::policy::{DispatchPolicy, Exhausted};
use crate::{
    notifications::messages,
    orders::{Change, OfferState, Reason, Snapshot, Status, change::NewOffer},
};

const ACTOR: &str = "system";

/// An attempt is due to start.
pub fn start(s: &Snapshot, ranked: Vec<(String, f64)>, policy: &DispatchPolicy) -> Change {
    let mut change = Change::of(s, ACTOR);
    go_on(&mut change, ranked, policy);
    change
}

/// The running attempt's deadline has passed (or its driver declined): the next candidate, or what exhaustion asks for.
pub fn timeout(s: &Snapshot, ranked: Vec<(String, f64)>, policy: &DispatchPolicy) -> Change {
    let mut change = Change::of(s, ACTOR);
    change.end_attempt(s, OfferState::Expired, Reason::AttemptTimeout);
    go_on(&mut change, ranked, policy);
    change
}

/// No driver within the lifetime.
pub fn lifetime(s: &Snapshot) -> Change {
    let mut change = Change::of(s, ACTOR);
    change.end_attempt(s, OfferState::Withdrawn, Reason::AttemptWithdrawn);
    change.enter(Status::Compensating, Reason::LifetimeTimeout, None);
    change
}

fn go_on(change: &mut Change, ranked: Vec<(String, f64)>, policy: &DispatchPolicy) {
    change.order.next_attempt_at = None;
    if ranked.is_empty() {
        return exhausted(change, policy);
    }
    // An offer must not outlive its order.
    let deadline = (change.at + delta(policy.attempt)).min(change.order.lifetime_deadline);
    change.order.attempt_no += 1;
    change.order.attempt_deadline = Some(deadline);
    change.new_offer = Some(NewOffer { id: Uuid::now_v7(), ranked, expires_at: deadline });
    change.note(Reason::AttemptStarted, None);
}

fn exhausted(change: &mut Change, policy: &DispatchPolicy) {
    match policy.exhausted {
        Exhausted::Research => {
            let pause = policy.retry_after(change.order.round);
            change.note(Reason::SearchAgain, None);
            change.order.round += 1;
            change.order.next_attempt_at = Some(change.at + delta(pause));
        }
        Exhausted::Alert => {
            change.order.lifetime_waived = !policy.pending_keeps_lifetime;
            change.enter(Status::Pending, Reason::NoCandidates, None);
            change.tell(messages::dispatch_failed(&change.order, change.at));
        }
    }
}

fn delta(duration: std::time::Duration) -> TimeDelta {
    TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::policy,
        orders::{order::fixture, timers},
    };

    fn near(driver: &str) -> Vec<(String, f64)> {
        vec![(driver.to_owned(), 100.0)]
    }

    fn reasons(change: &Change) -> Vec<Reason> {
        change.events.iter().map(|e| e.reason).collect()
    }

    #[test]
    fn the_first_attempt_offers_for_two_minutes() {
        let s = fixture::snapshot();
        let change = start(&s, near("D1"), &policy::fixture());
        assert_eq!(change.order.attempt_no, 1);
        assert_eq!(change.order.attempt_deadline, Some(s.now + TimeDelta::seconds(120)));
        assert_eq!(change.order.next_attempt_at, None);
        assert_eq!(reasons(&change), [Reason::AttemptStarted]);
    }

    #[test]
    fn a_lapsed_offer_expires_and_the_next_driver_is_asked_at_once() {
        let mut s = fixture::offered();
        s.now = s.order.attempt_deadline.unwrap();
        let change = timeout(&s, near("D2"), &policy::fixture());
        assert_eq!(change.offers, [(s.offers[0].clone(), OfferState::Expired)]);
        assert_eq!(change.new_offer.as_ref().unwrap().ranked, near("D2"));
        assert_eq!(reasons(&change), [Reason::AttemptTimeout, Reason::AttemptStarted]);
        assert_eq!(change.events.iter().map(|e| e.attempt_no).collect::<Vec<_>>(), [Some(1), Some(2)]);
    }

    #[test]
    fn a_declined_attempt_has_one_outcome() {
        let mut s = fixture::offered();
        s.offers[0].state = OfferState::Declined;
        s.order.attempt_deadline = Some(s.now);
        let change = timeout(&s, near("D2"), &policy::fixture());
        assert_eq!(change.offers, []);
        assert_eq!(reasons(&change), [Reason::AttemptStarted]);
    }

    #[test]
    fn research_searches_anew_after_the_retry_interval() {
        let s = fixture::snapshot();
        let change = start(&s, vec![], &policy::fixture());
        assert_eq!((change.order.status, change.order.round), (Status::Dispatching, 2));
        assert_eq!(change.order.next_attempt_at, Some(s.now + TimeDelta::seconds(15)));
        let jobs: Vec<_> = timers::timers(&change.order, s.now).iter().map(|t| t.id().to_string()).collect();
        assert_eq!(jobs, ["dispatch:ORD-1:1", "lifetime:ORD-1"]);
    }

    #[test]
    fn alert_leaves_the_order_to_the_dispatchers_and_tells_them() {
        let policy = DispatchPolicy { exhausted: Exhausted::Alert, pending_keeps_lifetime: false, ..policy::fixture() };
        let mut s = fixture::offered();
        s.now = s.order.attempt_deadline.unwrap();
        let change = timeout(&s, vec![], &policy);
        assert_eq!(change.order.status, Status::Pending);
        assert!(change.order.lifetime_waived);
        assert_eq!(reasons(&change), [Reason::AttemptTimeout, Reason::NoCandidates]);
        assert_eq!(change.messages.len(), 1);
        assert_eq!(timers::timers(&change.order, s.now), []);
    }

    #[test]
    fn an_offer_never_outlives_its_order() {
        let mut s = fixture::snapshot();
        s.now = s.order.lifetime_deadline - TimeDelta::seconds(30);
        let change = start(&s, near("D1"), &policy::fixture());
        assert_eq!(change.new_offer.unwrap().expires_at, s.order.lifetime_deadline);
    }

    #[test]
    fn the_lifetime_takes_the_live_offer_back() {
        let s = fixture::offered();
        let change = lifetime(&s);
        assert_eq!(change.order.status, Status::Compensating);
        assert_eq!(change.offers[0].1, OfferState::Withdrawn);
        assert_eq!(reasons(&change), [Reason::AttemptWithdrawn, Reason::LifetimeTimeout]);
        let jobs: Vec<_> = timers::timers(&change.order, s.now).iter().map(|t| t.id().to_string()).collect();
        assert_eq!(jobs, ["compensate:ORD-1"]);
    }
}
