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

/// Of so many searches in a row that found no driver one keeps who was looked at.
const RANKING_EVERY: i32 = 8;

/// An attempt is due to start.
pub fn start_attempt(s: &Snapshot, ranking: DriverRanking, policy: &DispatchPolicy) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    offer_or_end_round(s, &mut change, ranking, policy);
    change
}

/// The running attempt's deadline has passed (or everybody asked is out): the next candidates, or what exhaustion asks for.
pub fn time_out_attempt(s: &Snapshot, ranking: DriverRanking, policy: &DispatchPolicy) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    change.end_attempt(s, OfferState::Expired, EventReason::AttemptTimeout);
    offer_or_end_round(s, &mut change, ranking, policy);
    change
}

/// No driver within the lifetime.
pub fn end_lifetime(s: &Snapshot) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    change.end_attempt(s, OfferState::Withdrawn, EventReason::AttemptWithdrawn);
    change.transition_to(OrderStatus::Compensating, EventReason::LifetimeTimeout, None);
    change
}

fn offer_or_end_round(s: &Snapshot, change: &mut Change, ranking: DriverRanking, policy: &DispatchPolicy) {
    change.order.next_attempt_at = None;
    let repeats =
        ranking.ranked.is_empty() && policy.exhausted == ExhaustionAction::SearchAgain && follows_empty_search(s);
    if !repeats || s.order.round % RANKING_EVERY == 0 {
        change.ranking = Some((change.order.attempt_no + 1, ranking.explanation_excerpt()));
    }
    if ranking.ranked.is_empty() {
        return end_round(change, repeats, policy);
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

/// The latest thing that happened to the order is a search that found no driver, either: it waits for the next one.
fn follows_empty_search(s: &Snapshot) -> bool {
    let o = &s.order;
    let was_paused = o.next_attempt_at.is_some_and(|at| at > o.updated_at);
    o.round > 1 && was_paused && s.offers.iter().all(|offer| offer.round < o.round)
}

/// `repeats`: the search before ended like this one, and the history says so. Then the row alone is written.
fn end_round(change: &mut Change, repeats: bool, policy: &DispatchPolicy) {
    match policy.exhausted {
        ExhaustionAction::SearchAgain => {
            let pause = policy.retry_after(change.order.round);
            if !repeats {
                change.record_event(EventReason::SearchAgain, None);
            }
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
    fn searches_in_a_row_that_find_no_driver_are_one_event() {
        let mut s = fixture::created_snapshot();
        let policy = policy::example_policy();
        for round in 1..=RANKING_EVERY {
            let change = start_attempt(&s, DriverRanking::default(), &policy);
            assert_eq!(change.order.round, round + 1);
            assert_eq!(reasons(&change).len(), usize::from(round == 1), "round {round}");
            assert_eq!(change.ranking.is_some(), round == 1 || round == RANKING_EVERY, "round {round}");
            s = s.apply(&change);
            s.now = s.order.next_attempt_at.unwrap();
        }
        let found = start_attempt(&s, near("D1"), &policy);
        assert!(found.ranking.is_some());
        assert_eq!(reasons(&found), [EventReason::AttemptStarted]);
    }

    #[test]
    fn an_empty_search_after_a_driver_was_lost_is_an_event() {
        let mut s = fixture::created_snapshot();
        let change = start_attempt(&s, DriverRanking::default(), &policy::example_policy());
        s = s.apply(&change);
        // As after the driver gave the order back, or a dispatcher restarted the search.
        s.now = s.order.next_attempt_at.unwrap();
        (s.order.next_attempt_at, s.order.updated_at) = (Some(s.now), s.now);
        let change = start_attempt(&s, DriverRanking::default(), &policy::example_policy());
        assert_eq!(reasons(&change), [EventReason::SearchAgain]);
        assert!(change.ranking.is_some());
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
