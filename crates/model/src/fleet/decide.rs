//! What an attempt's start, its timeout and the end of the lifetime lead to. Pure.

use chrono::TimeDelta;

use crate::{
    actor::Actor,
    decide::{Change, change::NewOffers},
    messages,
    order::{EventReason, OfferState, OrderStatus, Snapshot},
    policy::{DispatchPolicy, ExhaustionAction},
    ranking::DriverRanking,
};

/// An attempt is due to start.
pub fn start_attempt(s: &Snapshot, ranking: DriverRanking, policy: &DispatchPolicy) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    offer_or_end_round(&mut change, ranking, policy);
    change
}

/// The running attempt's deadline has passed (or everybody asked is out): the next candidates, or what exhaustion asks for.
pub fn time_out_attempt(s: &Snapshot, ranking: DriverRanking, policy: &DispatchPolicy) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    change.end_attempt(s, OfferState::Expired, EventReason::AttemptTimeout);
    offer_or_end_round(&mut change, ranking, policy);
    change
}

/// No driver within the lifetime.
pub fn end_lifetime(s: &Snapshot) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    change.end_attempt(s, OfferState::Withdrawn, EventReason::AttemptWithdrawn);
    change.transition_to(OrderStatus::Compensating, EventReason::LifetimeTimeout, None);
    change
}

fn offer_or_end_round(change: &mut Change, ranking: DriverRanking, policy: &DispatchPolicy) {
    change.order.next_attempt_at = None;
    change.ranking = Some((change.order.attempt_no + 1, ranking.explanation_excerpt()));
    if ranking.ranked.is_empty() {
        return end_round(change, policy);
    }
    // An offer must not outlive its order.
    let deadline = (change.at + as_delta(policy.attempt)).min(change.order.lifetime_deadline);
    change.order.attempt_no += 1;
    change.order.attempt_deadline = Some(deadline);
    change.new_offers = Some(NewOffers {
        ranked: ranking.ranked,
        at_once: policy.ask_at_once,
        per_driver: policy.offers_per_driver,
        expires_at: deadline,
    });
    change.record_event(EventReason::AttemptStarted, None);
}

fn end_round(change: &mut Change, policy: &DispatchPolicy) {
    match policy.exhausted {
        ExhaustionAction::SearchAgain => {
            let pause = policy.retry_after(change.order.round);
            change.record_event(EventReason::SearchAgain, None);
            change.order.round += 1;
            change.order.next_attempt_at = Some(change.at + as_delta(pause));
        }
        ExhaustionAction::Alert => {
            change.order.lifetime_waived = !policy.pending_keeps_lifetime;
            change.transition_to(OrderStatus::Pending, EventReason::NoCandidates, None);
            change.notify(messages::dispatch_failed(&change.order, change.at));
        }
    }
}

fn as_delta(duration: std::time::Duration) -> TimeDelta {
    TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decide::timers, order::order::fixture, policy, ranking::fixture::ranking_of};

    fn near(driver: &str) -> DriverRanking {
        ranking_of(&[driver])
    }

    fn reasons(change: &Change) -> Vec<EventReason> {
        change.events.iter().map(|e| e.reason).collect()
    }

    #[test]
    fn the_first_attempt_offers_for_two_minutes() {
        let s = fixture::created_snapshot();
        let change = start_attempt(&s, near("D1"), &policy::example_policy());
        assert_eq!(change.order.attempt_no, 1);
        assert_eq!(change.order.attempt_deadline, Some(s.now + TimeDelta::seconds(120)));
        assert_eq!(change.order.next_attempt_at, None);
        assert_eq!(reasons(&change), [EventReason::AttemptStarted]);
    }

    #[test]
    fn a_lapsed_offer_expires_and_the_next_driver_is_asked_at_once() {
        let mut s = fixture::offered_snapshot();
        s.now = s.order.attempt_deadline.unwrap();
        let change = time_out_attempt(&s, near("D2"), &policy::example_policy());
        assert_eq!((&change.offers[0].offer, change.offers[0].to), (&s.offers[0], OfferState::Expired));
        assert_eq!(change.new_offers.as_ref().unwrap().ranked, near("D2").ranked);
        assert_eq!(reasons(&change), [EventReason::AttemptTimeout, EventReason::AttemptStarted]);
        assert_eq!(change.events.iter().map(|e| e.attempt_no).collect::<Vec<_>>(), [Some(1), Some(2)]);
    }

    #[test]
    fn a_declined_attempt_has_one_outcome() {
        let mut s = fixture::offered_snapshot();
        s.offers[0].state = OfferState::Declined;
        s.order.attempt_deadline = Some(s.now);
        let change = time_out_attempt(&s, near("D2"), &policy::example_policy());
        assert_eq!(change.offers, []);
        assert_eq!(reasons(&change), [EventReason::AttemptStarted]);
    }

    #[test]
    fn an_attempt_nobody_could_answer_has_one_outcome() {
        let mut s = fixture::offered_snapshot();
        s.offers[0].state = OfferState::Withdrawn;
        s.order.attempt_deadline = Some(s.now);
        assert_eq!(
            reasons(&time_out_attempt(&s, near("D2"), &policy::example_policy())),
            [EventReason::AttemptStarted]
        );
    }

    #[test]
    fn who_was_looked_at_is_kept_even_if_nobody_could_be_asked() {
        let s = fixture::created_snapshot();
        let change = start_attempt(&s, DriverRanking::default(), &policy::example_policy());
        assert_eq!(change.ranking, Some((1, DriverRanking::default())));
    }

    #[test]
    fn the_search_restarts_after_the_retry_interval() {
        let s = fixture::created_snapshot();
        let change = start_attempt(&s, DriverRanking::default(), &policy::example_policy());
        assert_eq!((change.order.status, change.order.round), (OrderStatus::Dispatching, 2));
        assert_eq!(change.order.next_attempt_at, Some(s.now + TimeDelta::seconds(15)));
        let jobs: Vec<_> = timers::order_timers(&change.order, s.now).iter().map(|t| t.id().to_string()).collect();
        assert_eq!(jobs, ["dispatch:ORD-1:1", "lifetime:ORD-1"]);
    }

    #[test]
    fn alert_leaves_the_order_to_the_dispatchers_and_tells_them() {
        let policy = DispatchPolicy {
            exhausted: ExhaustionAction::Alert,
            pending_keeps_lifetime: false,
            ..policy::example_policy()
        };
        let mut s = fixture::offered_snapshot();
        s.now = s.order.attempt_deadline.unwrap();
        let change = time_out_attempt(&s, DriverRanking::default(), &policy);
        assert_eq!(change.order.status, OrderStatus::Pending);
        assert!(change.order.lifetime_waived);
        assert_eq!(reasons(&change), [EventReason::AttemptTimeout, EventReason::NoCandidates]);
        assert_eq!(change.messages.len(), 1);
        assert_eq!(timers::order_timers(&change.order, s.now), []);
    }

    #[test]
    fn an_offer_never_outlives_its_order() {
        let mut s = fixture::created_snapshot();
        s.now = s.order.lifetime_deadline - TimeDelta::seconds(30);
        let change = start_attempt(&s, near("D1"), &policy::example_policy());
        assert_eq!(change.new_offers.unwrap().expires_at, s.order.lifetime_deadline);
    }

    #[test]
    fn the_lifetime_takes_the_live_offer_back() {
        let s = fixture::offered_snapshot();
        let change = end_lifetime(&s);
        assert_eq!(change.order.status, OrderStatus::Compensating);
        assert_eq!(change.offers[0].to, OfferState::Withdrawn);
        assert_eq!(reasons(&change), [EventReason::AttemptWithdrawn, EventReason::LifetimeTimeout]);
        let jobs: Vec<_> = timers::order_timers(&change.order, s.now).iter().map(|t| t.id().to_string()).collect();
        assert_eq!(jobs, ["compensate:ORD-1"]);
    }
}
