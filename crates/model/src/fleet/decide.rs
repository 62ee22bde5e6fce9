//! Decisions on the start of an attempt, its waves, its timeout and the end of the lifetime. Pure.

use chrono::{DateTime, TimeDelta, Utc};

use crate::{
    actor::Actor,
    decide::{Change, change::NewOffers},
    messages,
    order::{EventReason, OfferState, OrderStatus, Snapshot},
    policy::{DispatchPolicy, ExhaustionAction},
    ranking::{DriverRanking, RankedDriver},
};

pub fn start_attempt(s: &Snapshot, ranking: DriverRanking, policy: &DispatchPolicy) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    offer_or_end_round(s, &mut change, ranking, policy);
    change
}

/// Ends the running attempt, whose deadline has passed or whose drivers are all out. Asks the next candidates, or
/// applies the exhaustion action.
pub fn time_out_attempt(s: &Snapshot, ranking: DriverRanking, policy: &DispatchPolicy) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    change.end_attempt(s, OfferState::Expired, EventReason::AttemptTimeout);
    offer_or_end_round(s, &mut change, ranking, policy);
    change
}

/// Ends an order that found no driver within its lifetime.
pub fn end_lifetime(s: &Snapshot) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    change.end_attempt(s, OfferState::Withdrawn, EventReason::AttemptWithdrawn);
    change.transition_to(OrderStatus::Compensating, EventReason::LifetimeTimeout, None);
    change
}

fn offer_or_end_round(s: &Snapshot, change: &mut Change, ranking: DriverRanking, policy: &DispatchPolicy) {
    change.order.next_attempt_at = None;
    change.ranking = Some((change.order.attempt_no + 1, ranking.explanation_excerpt()));
    let Some((wave, ranked)) = policy.find_wave(1, ranking.ranked) else {
        return end_round(change, follows_empty_search(s), policy);
    };
    // An offer must not outlive its order.
    let deadline = (change.at + as_delta(policy.attempt)).min(change.order.lifetime_deadline);
    change.order.attempt_no += 1;
    change.order.attempt_deadline = Some(deadline);
    enter_wave(change, wave, policy, deadline);
    ask_drivers(change, ranked, policy, deadline);
    change.record_event(EventReason::AttemptStarted, None);
}

/// Starts the next wave of the running attempt, which keeps its deadline and its live offers. Waves without a further
/// driver in their circle are skipped. If no later wave has one, the next wave starts without offers while earlier offers
/// are live. Otherwise no asked driver can answer, and the attempt ends as after the last wave. An attempt whose deadline
/// has passed times out.
pub fn start_wave(s: &Snapshot, ranking: DriverRanking, policy: &DispatchPolicy) -> Change {
    let Some(deadline) = s.order.attempt_deadline.filter(|deadline| *deadline > s.now) else {
        return time_out_attempt(s, ranking, policy);
    };
    let mut change = Change::new(s, Actor::SYSTEM);
    let next = s.order.wave_no + 1;
    change.ranking = Some((s.order.attempt_no, ranking.explanation_excerpt()));
    if let Some((wave, ranked)) = policy.find_wave(next, ranking.ranked) {
        enter_wave(&mut change, wave, policy, deadline);
        ask_drivers(&mut change, ranked, policy, deadline);
        change.record_event(EventReason::WaveStarted, Some(format!("wave {wave}")));
    } else if s.live_offer().is_some() {
        enter_wave(&mut change, next, policy, deadline);
        change.record_event(EventReason::WaveStarted, Some(format!("wave {next}: no further driver")));
    } else {
        end_answered_attempt(s, &mut change);
        end_round(&mut change, false, policy);
    }
    change
}

/// Enters the wave with this number. The time of the next wave is at most the attempt's deadline.
fn enter_wave(change: &mut Change, number: i32, policy: &DispatchPolicy, deadline: DateTime<Utc>) {
    let lasts = policy.wave(number).filter(|_| policy.wave(number + 1).is_some()).map(|wave| wave.lasts);
    change.order.wave_no = number;
    change.order.next_wave_at = lasts.map(|lasts| (change.at + as_delta(lasts)).min(deadline));
}

/// Asks the best of these drivers, as many as the wave of the change asks.
fn ask_drivers(change: &mut Change, ranked: Vec<RankedDriver>, policy: &DispatchPolicy, deadline: DateTime<Utc>) {
    change.new_offers = Some(NewOffers {
        ranked,
        wave: change.order.wave_no,
        at_once: policy.wave(change.order.wave_no).map_or(1, |wave| wave.ask),
        per_driver: policy.offers_per_driver,
        expires_at: deadline,
    });
}

/// Ends an attempt whose asked drivers have all answered, with the outcome that the last of them would have recorded if
/// no wave had followed.
fn end_answered_attempt(s: &Snapshot, change: &mut Change) {
    let mut asked = s.offers.iter().filter(|offer| offer.attempt_no == s.order.attempt_no);
    let is_declined = asked.any(|offer| offer.state == OfferState::Declined);
    (change.order.attempt_deadline, change.order.next_wave_at) = (None, None);
    change.record_event(if is_declined { EventReason::OfferDeclined } else { EventReason::OfferWithdrawn }, None);
}

/// Returns whether the order searches for an own driver and none is asked at present. It waits for its next search, or
/// its attempt is over and the following search has not ended.
pub fn awaits_driver(s: &Snapshot) -> bool {
    let o = &s.order;
    let is_attempt_over = o.attempt_deadline.is_some_and(|deadline| deadline <= s.now);
    let searches = o.next_attempt_at.is_some() || is_attempt_over;
    let is_own = o.status == OrderStatus::Dispatching && o.partner.is_none();
    is_own && searches && !o.held_for_review && !o.is_past_lifetime(s.now)
}

/// Asks drivers who became free for an order that [awaits](awaits_driver) a driver, as its own search would. Also ends
/// an attempt whose deadline has passed.
pub fn offer_to_freed(s: &Snapshot, ranking: DriverRanking, policy: &DispatchPolicy) -> Change {
    if s.order.attempt_deadline.is_some() {
        time_out_attempt(s, ranking, policy)
    } else {
        start_attempt(s, ranking, policy)
    }
}

/// Returns the time of the next search if this search also finds no driver and needs no write. `None`: this search does
/// not repeat the previous one, or a different pause follows.
pub fn next_unwritten_search(s: &Snapshot, policy: &DispatchPolicy) -> Option<DateTime<Utc>> {
    let o = &s.order;
    let is_last_pause = usize::try_from(o.round).is_ok_and(|round| round >= policy.retry.len());
    let repeats = policy.exhausted == ExhaustionAction::SearchAgain
        && follows_empty_search(s)
        && is_last_pause
        && o.search_pause() == Some(as_delta(policy.retry_after(o.round)));
    o.next_search_at(s.now).filter(|_| repeats)
}

/// Returns whether the latest event of the order is a search that found no driver either.
fn follows_empty_search(s: &Snapshot) -> bool {
    let o = &s.order;
    let was_paused = o.next_attempt_at.is_some_and(|at| at > o.updated_at);
    o.round > 1 && was_paused && s.offers.iter().all(|offer| offer.round < o.round)
}

/// Ends a round without a driver. `repeats`: the previous search ended the same way and is in the history, so no event
/// is recorded.
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
    use crate::{
        decide::{Decision, actions, timers},
        ids::OfferId,
        order::{Offer, order::fixture},
        policy::{self, Wave},
        ranking::fixture::ranking_of,
    };

    fn near(driver: &str) -> DriverRanking {
        ranking_of(&[driver])
    }

    fn reasons(change: &Change) -> Vec<EventReason> {
        change.events.iter().map(|e| e.reason).collect()
    }

    #[test]
    fn first_offer_expires_after_two_minutes() {
        let s = fixture::created_snapshot();
        let change = start_attempt(&s, near("D1"), &policy::example_policy());
        assert_eq!(change.order.attempt_no, 1);
        assert_eq!(change.order.attempt_deadline, Some(s.now + TimeDelta::seconds(120)));
        assert_eq!(change.order.next_attempt_at, None);
        assert_eq!(reasons(&change), [EventReason::AttemptStarted]);
    }

    #[test]
    fn lapsed_offer_asks_the_next_driver() {
        let mut s = fixture::offered_snapshot();
        s.now = s.order.attempt_deadline.unwrap();
        let change = time_out_attempt(&s, near("D2"), &policy::example_policy());
        assert_eq!((&change.offers[0].offer, change.offers[0].to), (&s.offers[0], OfferState::Expired));
        assert_eq!(change.new_offers.as_ref().unwrap().ranked, near("D2").ranked);
        assert_eq!(reasons(&change), [EventReason::AttemptTimeout, EventReason::AttemptStarted]);
        assert_eq!(change.events.iter().map(|e| e.attempt_no).collect::<Vec<_>>(), [Some(1), Some(2)]);
    }

    /// Three waves of one driver each, within 1, 2 and 5 km.
    fn waves() -> DispatchPolicy {
        let wave = |radius_m| Wave { ask: 1, radius_m, lasts: std::time::Duration::from_secs(20) };
        DispatchPolicy { waves: vec![wave(1_000.0), wave(2_000.0), wave(5_000.0)], ..policy::example_policy() }
    }

    fn at(driver: &str, distance_m: f64) -> DriverRanking {
        let mut ranking = near(driver);
        ranking.ranked[0].distance_m = distance_m;
        ranking
    }

    /// Returns the order after the change, with the offer that it makes.
    fn with_offer(s: &Snapshot, change: &Change) -> Snapshot {
        let mut after = s.apply(change);
        if let Some(new) = &change.new_offers {
            after.offers.push(Offer {
                id: OfferId::from_uuid(uuid::Uuid::now_v7()),
                attempt_no: change.order.attempt_no,
                wave: new.wave,
                round: change.order.round,
                driver_id: new.ranked[0].driver_id.clone(),
                state: OfferState::Offered,
                offered_at: change.at,
                expires_at: new.expires_at,
            });
        }
        after
    }

    fn timer_ids(s: &Snapshot) -> Vec<String> {
        timers::order_timers(&s.order, s.now).iter().map(|timer| timer.id().to_string()).collect()
    }

    fn decline_last(s: &Snapshot) -> Change {
        let offer = s.offers.last().unwrap();
        let Decision::Change(change) = actions::decline_offer(s, &offer.driver_id, offer.id, None) else {
            panic!("the offer is live")
        };
        *change
    }

    #[test]
    fn later_wave_keeps_the_deadline_and_earlier_offers() {
        let (s, policy) = (fixture::created_snapshot(), waves());
        let first = start_attempt(&s, at("D1", 900.0), &policy);
        let mut s = with_offer(&s, &first);
        let deadline = s.order.attempt_deadline;
        assert_eq!(timer_ids(&s), ["timeout:ORD-1:1", "wave:ORD-1:1:2", "lifetime:ORD-1"]);
        s.now = s.order.next_wave_at.unwrap();
        let second = start_wave(&s, at("D2", 1_500.0), &policy);
        assert_eq!(reasons(&second), [EventReason::WaveStarted]);
        assert_eq!((second.order.attempt_no, second.order.attempt_deadline, second.offers.len()), (1, deadline, 0));
        let new = second.new_offers.clone().unwrap();
        assert_eq!((new.wave, new.at_once, Some(new.expires_at)), (2, 1, deadline));
        s = with_offer(&s, &second);
        assert_eq!(timer_ids(&s), ["timeout:ORD-1:1", "wave:ORD-1:1:3", "lifetime:ORD-1"]);
        s.now = s.order.next_wave_at.unwrap();
        s = with_offer(&s, &start_wave(&s, at("D3", 4_000.0), &policy));
        assert_eq!(timer_ids(&s), ["timeout:ORD-1:1", "lifetime:ORD-1"], "the last wave lasts until the deadline");
        assert_eq!(s.live_offers().map(|offer| offer.wave).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn waves_without_a_driver_are_skipped() {
        let (s, policy) = (fixture::created_snapshot(), waves());
        let change = start_attempt(&s, at("D1", 4_000.0), &policy);
        assert_eq!((change.order.wave_no, change.order.next_wave_at), (3, None));
        let mut s = with_offer(&s, &start_attempt(&s, at("D1", 900.0), &policy));
        s.now = s.order.next_wave_at.unwrap();
        let skipped = start_wave(&s, at("D2", 4_000.0), &policy);
        assert_eq!((skipped.order.wave_no, skipped.new_offers.as_ref().map(|new| new.wave)), (3, Some(3)));
        let empty = start_wave(&s, DriverRanking::default(), &policy);
        assert_eq!((empty.order.wave_no, &empty.new_offers), (2, &None));
        assert_eq!(empty.order.next_wave_at, Some(s.now + TimeDelta::seconds(20)), "the third wave looks again");
    }

    #[test]
    fn last_decline_of_a_wave_starts_the_next_at_once() {
        let (s, policy) = (fixture::created_snapshot(), waves());
        let mut s = with_offer(&s, &start_attempt(&s, at("D1", 900.0), &policy));
        s.now += TimeDelta::seconds(5);
        let declined = decline_last(&s);
        assert_eq!(reasons(&declined), [EventReason::DriverDeclined], "the attempt has no outcome yet");
        s = s.apply(&declined);
        assert_eq!(s.order.next_wave_at, Some(s.now));
        s = with_offer(&s, &start_wave(&s, at("D2", 1_500.0), &policy));
        assert_eq!(s.order.next_wave_at, Some(s.now + TimeDelta::seconds(20)));

        // No further driver is near, so the attempt ends with one outcome.
        s = s.apply(&decline_last(&s));
        let ended = start_wave(&s, DriverRanking::default(), &policy);
        assert_eq!(reasons(&ended), [EventReason::OfferDeclined, EventReason::SearchAgain]);
        assert_eq!((ended.order.attempt_deadline, ended.order.next_wave_at), (None, None));
        assert!(ended.order.next_attempt_at.is_some());
    }

    #[test]
    fn hold_between_waves_records_the_outcome() {
        let s = fixture::created_snapshot();
        let mut s = with_offer(&s, &start_attempt(&s, at("D1", 900.0), &waves()));
        s = s.apply(&decline_last(&s));
        let change = end_lifetime(&s);
        assert_eq!(reasons(&change), [EventReason::AttemptWithdrawn, EventReason::LifetimeTimeout]);
        assert_eq!(change.order.next_wave_at, None);
    }

    #[test]
    fn wave_after_the_deadline_times_out() {
        let s = fixture::created_snapshot();
        let mut s = with_offer(&s, &start_attempt(&s, at("D1", 900.0), &waves()));
        s.now = s.order.attempt_deadline.unwrap();
        let change = start_wave(&s, at("D2", 1_500.0), &waves());
        assert_eq!(reasons(&change), [EventReason::AttemptTimeout, EventReason::AttemptStarted]);
    }

    #[test]
    fn wave_never_starts_after_its_attempt() {
        let s = fixture::created_snapshot();
        let policy = DispatchPolicy { attempt: std::time::Duration::from_secs(15), ..waves() };
        let change = start_attempt(&s, at("D1", 900.0), &policy);
        assert_eq!(change.order.next_wave_at, change.order.attempt_deadline);
    }

    #[test]
    fn declined_attempt_has_one_outcome() {
        let mut s = fixture::offered_snapshot();
        s.offers[0].state = OfferState::Declined;
        s.order.attempt_deadline = Some(s.now);
        let change = time_out_attempt(&s, near("D2"), &policy::example_policy());
        assert_eq!(change.offers, []);
        assert_eq!(reasons(&change), [EventReason::AttemptStarted]);
    }

    #[test]
    fn unanswerable_attempt_has_one_outcome() {
        let mut s = fixture::offered_snapshot();
        s.offers[0].state = OfferState::Withdrawn;
        s.order.attempt_deadline = Some(s.now);
        assert_eq!(
            reasons(&time_out_attempt(&s, near("D2"), &policy::example_policy())),
            [EventReason::AttemptStarted]
        );
    }

    #[test]
    fn ranking_is_kept_without_an_offer() {
        let s = fixture::created_snapshot();
        let change = start_attempt(&s, DriverRanking::default(), &policy::example_policy());
        assert_eq!(change.ranking, Some((1, DriverRanking::default())));
    }

    #[test]
    fn search_restarts_after_retry_interval() {
        let s = fixture::created_snapshot();
        let change = start_attempt(&s, DriverRanking::default(), &policy::example_policy());
        assert_eq!((change.order.status, change.order.round), (OrderStatus::Dispatching, 2));
        assert_eq!(change.order.next_attempt_at, Some(s.now + TimeDelta::seconds(15)));
        let jobs: Vec<_> = timers::order_timers(&change.order, s.now).iter().map(|t| t.id().to_string()).collect();
        assert_eq!(jobs, ["dispatch:ORD-1:1", "lifetime:ORD-1"]);
    }

    #[test]
    fn consecutive_empty_searches_are_one_event() {
        let mut s = fixture::created_snapshot();
        let policy = policy::example_policy();
        for round in 1..=8 {
            let change = start_attempt(&s, DriverRanking::default(), &policy);
            assert_eq!(change.order.round, round + 1);
            assert_eq!(reasons(&change).len(), usize::from(round == 1), "round {round}");
            s = s.apply(&change);
            s.now = s.order.next_attempt_at.unwrap();
        }
        let found = start_attempt(&s, near("D1"), &policy);
        assert!(found.ranking.is_some());
        assert_eq!(reasons(&found), [EventReason::AttemptStarted]);
    }

    #[test]
    fn repeated_empty_search_writes_nothing() {
        // The pauses are 15 s, then always 30 s.
        let policy = policy::example_policy();
        let mut s = fixture::created_snapshot();
        assert_eq!(next_unwritten_search(&s, &policy), None, "the first search is written");
        for pause in [15, 30] {
            let begun = s.now;
            s = s.apply(&start_attempt(&s, DriverRanking::default(), &policy));
            s.now = s.order.next_attempt_at.unwrap();
            assert_eq!((s.now - begun).num_seconds(), pause);
            let written = next_unwritten_search(&s, &policy);
            assert_eq!(written.is_some(), pause == 30, "after {pause} s");
        }
        let first = s.now;
        for n in 0..100 {
            // Late by up to half a minute, but still due.
            s.now = first + TimeDelta::seconds(30 * n) + TimeDelta::milliseconds(299 * n);
            let timer = timers::order_timers(&s.order, s.now).remove(0);
            assert_eq!((timer.id().as_str(), timer.due), ("dispatch:ORD-1:1", first + TimeDelta::seconds(30 * n)));
            assert_eq!(next_unwritten_search(&s, &policy), Some(first + TimeDelta::seconds(30 * (n + 1))));
        }
        // The area is full and is searched less often. This search is written.
        let busy = DispatchPolicy { retry: vec![std::time::Duration::from_secs(60)], ..policy.clone() };
        assert_eq!(next_unwritten_search(&s, &busy), None);
        let alert = DispatchPolicy { exhausted: ExhaustionAction::Alert, ..policy };
        assert_eq!(next_unwritten_search(&s, &alert), None);
    }

    #[test]
    fn long_pauses_are_written_each_time() {
        let policy = DispatchPolicy { retry: vec![std::time::Duration::from_secs(61)], ..policy::example_policy() };
        let mut s = fixture::created_snapshot();
        s = s.apply(&start_attempt(&s, DriverRanking::default(), &policy));
        s.now = s.order.next_attempt_at.unwrap();
        assert_eq!(next_unwritten_search(&s, &policy), None);
    }

    #[test]
    fn order_awaits_driver_until_offered_or_held() {
        let mut s = fixture::created_snapshot();
        assert!(awaits_driver(&s));
        s = s.apply(&start_attempt(&s, DriverRanking::default(), &policy::example_policy()));
        assert!(awaits_driver(&s));
        let mut offered = fixture::offered_snapshot();
        assert!(!awaits_driver(&offered));
        offered.now = offered.order.attempt_deadline.unwrap();
        assert!(awaits_driver(&offered), "its attempt is over");
        let mut held = s.clone();
        held.order.held_for_review = true;
        assert!(!awaits_driver(&held));
        s.now = s.order.lifetime_deadline;
        assert!(!awaits_driver(&s));
        assert!(!awaits_driver(&fixture::partner_snapshot()));
    }

    #[test]
    fn freed_driver_is_asked_as_by_search() {
        let policy = policy::example_policy();
        let waiting = fixture::created_snapshot();
        assert_eq!(reasons(&offer_to_freed(&waiting, near("D1"), &policy)), [EventReason::AttemptStarted]);
        let mut lapsed = fixture::offered_snapshot();
        lapsed.now = lapsed.order.attempt_deadline.unwrap();
        let change = offer_to_freed(&lapsed, near("D2"), &policy);
        assert_eq!(change.offers[0].to, OfferState::Expired);
        assert_eq!(reasons(&change), [EventReason::AttemptTimeout, EventReason::AttemptStarted]);
    }

    #[test]
    fn empty_search_after_driver_loss_is_recorded() {
        let mut s = fixture::created_snapshot();
        let change = start_attempt(&s, DriverRanking::default(), &policy::example_policy());
        s = s.apply(&change);
        // The same state as after the driver gave the order back, or a dispatcher restarted the search.
        s.now = s.order.next_attempt_at.unwrap();
        (s.order.next_attempt_at, s.order.updated_at) = (Some(s.now), s.now);
        let change = start_attempt(&s, DriverRanking::default(), &policy::example_policy());
        assert_eq!(reasons(&change), [EventReason::SearchAgain]);
        assert!(change.ranking.is_some());
    }

    #[test]
    fn exhausted_order_alerts_dispatchers() {
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
    fn offer_never_outlives_its_order() {
        let mut s = fixture::created_snapshot();
        s.now = s.order.lifetime_deadline - TimeDelta::seconds(30);
        let change = start_attempt(&s, near("D1"), &policy::example_policy());
        assert_eq!(change.new_offers.unwrap().expires_at, s.order.lifetime_deadline);
    }

    #[test]
    fn lifetime_end_withdraws_the_live_offer() {
        let s = fixture::offered_snapshot();
        let change = end_lifetime(&s);
        assert_eq!(change.order.status, OrderStatus::Compensating);
        assert_eq!(change.offers[0].to, OfferState::Withdrawn);
        assert_eq!(reasons(&change), [EventReason::AttemptWithdrawn, EventReason::LifetimeTimeout]);
        let jobs: Vec<_> = timers::order_timers(&change.order, s.now).iter().map(|t| t.id().to_string()).collect();
        assert_eq!(jobs, ["compensate:ORD-1"]);
    }
}
