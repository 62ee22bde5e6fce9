//! Timers that a change makes obsolete for good. Design: docs/design/timers-and-reconciler.md.
//!
//! An obsolete timer is harmless, but it loads the row when it fires. A change therefore cancels the timers that no
//! later state of the order can need. Such a timer may be cancelled before, between or after any other calls for the
//! same order.
//!
//! The number in the id proves that a timer is obsolete. Attempts count up and have one deadline each, waves count up in
//! their attempt, and alerts are acknowledged once. `lifetime:{order}` has no number, and the number of `poll:{order}:{k}` restarts with each
//! attempt. These two are cancelled only when the order has neither a driver nor a search, because it then never has
//! either again. Timers that are due immediately (messages, callbacks) are not cancelled.

use job_contract::{Job, JobAddress, JobId};
use jobs::{
    DispatchOrder, EscalateAlert, ExpireAttempt, ExpireOrder, PollPartner, RemindDispatchers, StartWave, WarnOfPickup,
};

use super::timers::derive_timers;
use crate::order::{Order, Snapshot};

/// Returns the timers that the order needed before the change and can never need again. This includes the lifetime
/// timer only after the order has ended. Until then, an order with a driver or under review may need it again.
pub fn superseded_timers(before: &Snapshot, after: &Snapshot) -> Vec<JobAddress> {
    let wanted = derive_timers(after);
    let is_wanted = |id: &JobId| wanted.iter().any(|timer| timer.id() == id);
    let asked_for = derive_timers(before).into_iter().map(|timer| timer.job);
    let asked_for = asked_for.filter(|job| job.id.kind() != ExpireOrder::KIND);
    let mut left: Vec<_> = asked_for
        .map(|job| JobAddress { queue: job.queue, id: job.id })
        .filter(|timer| !is_wanted(&timer.id) && is_gone_for_good(&after.order, &timer.id))
        .collect();
    if !has_ended(&before.order) && has_ended(&after.order) && after.now < after.order.lifetime_deadline {
        let lifetime = ExpireOrder { order: after.order.id.clone() };
        left.push(JobAddress { queue: ExpireOrder::QUEUE, id: lifetime.id() });
    }
    left
}

/// Returns whether the order has no driver and searches for none. It never does so again.
fn has_ended(order: &Order) -> bool {
    !order.status.lacks_driver() && !order.status.occupies_driver()
}

/// Returns whether no later state of the order can need this timer. The order does not need it now.
fn is_gone_for_good(order: &Order, timer: &JobId) -> bool {
    let number = timer.key().rsplit(':').next().and_then(|number| number.parse::<u32>().ok());
    let is_past = |attempt: u32| number.is_some_and(|number| number < attempt);
    match timer.kind() {
        ExpireAttempt::KIND => order.attempt_deadline.is_none() || is_past(order.attempt_number()),
        StartWave::KIND => StartWave::decode(timer, None).is_ok_and(|job| is_wave_past(order, &job)),
        // While a booking is unanswered, the order still needs the dispatch job of its attempt; the caller excludes
        // such jobs.
        DispatchOrder::KIND => has_ended(order) || is_past(order.attempt_number() + 1),
        PollPartner::KIND | WarnOfPickup::KIND => has_ended(order),
        EscalateAlert::KIND | RemindDispatchers::KIND => true,
        _ => false,
    }
}

/// Returns whether the order can no longer start this wave: its attempt has ended or has a later wave.
fn is_wave_past(order: &Order, job: &StartWave) -> bool {
    let reached = (order.attempt_number(), order.wave_no.unsigned_abs());
    order.next_wave_at.is_none() || (job.attempt, job.wave) <= reached
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::{
        actor::Actor,
        decide::{Decision, actions, review, timers},
        messages,
        order::{OrderStatus, PendingAlert, order::fixture},
    };

    #[track_caller]
    fn after(s: &Snapshot, decision: Decision) -> Snapshot {
        match decision {
            Decision::Change(change) => s.apply(&change),
            other => panic!("{other:?}"),
        }
    }

    fn ids(before: &Snapshot, after: &Snapshot) -> Vec<String> {
        superseded_timers(before, after).iter().map(|timer| timer.id.to_string()).collect()
    }

    #[test]
    fn accepted_offer_supersedes_only_its_timeout() {
        let s = fixture::offered_snapshot();
        let offer = &s.offers[0];
        let accepted = after(&s, actions::accept_offer(&s, &offer.driver_id, offer.id));
        let superseded = superseded_timers(&s, &accepted);
        assert_eq!(ids(&s, &accepted), ["timeout:ORD-1:1"], "an order that loses its driver needs the lifetime again");
        assert_eq!(superseded[0].queue, jobs::queues::DISPATCH_TIMEOUT);
    }

    #[test]
    fn moved_timer_is_not_superseded() {
        let s = fixture::offered_snapshot();
        let offer = &s.offers[0];
        let declined = after(&s, actions::decline_offer(&s, &offer.driver_id, offer.id, None));
        assert_eq!(ids(&s, &declined), Vec::<String>::new());
    }

    #[test]
    fn started_or_cancelled_attempt_supersedes_its_job() {
        let s = fixture::created_snapshot();
        let held = after(&s, review::hold_order(&s, &Actor::SYSTEM, "wait"));
        assert_eq!(ids(&s, &held), Vec::<String>::new(), "the order continues with this attempt");
        let cancelled = after(&s, actions::cancel_order(&s, &Actor::SYSTEM, None));
        assert_eq!(ids(&s, &cancelled), ["dispatch:ORD-1:1", "lifetime:ORD-1"]);
        let mut begun = s.clone();
        (begun.order.attempt_no, begun.order.next_attempt_at) = (1, None);
        begun.order.attempt_deadline = Some(s.now + TimeDelta::seconds(120));
        assert_eq!(ids(&s, &begun), ["dispatch:ORD-1:1"]);
    }

    #[test]
    fn only_order_end_supersedes_partner_polls() {
        let mut s = fixture::created_snapshot();
        (s.order.status, s.order.next_attempt_at, s.order.poll_no) = (OrderStatus::PendingJobId, None, 2);
        s.order.next_poll_at = Some(s.now);
        let mut answered = s.clone();
        answered.order.next_poll_at = None;
        assert_eq!(ids(&s, &answered), Vec::<String>::new(), "the same number comes again");
        let cancelled = after(&s, actions::cancel_order(&s, &Actor::SYSTEM, None));
        assert_eq!(ids(&s, &cancelled), ["poll:ORD-1:3", "lifetime:ORD-1"]);
    }

    #[test]
    fn lifetime_timer_is_superseded_at_completion() {
        let mut s = fixture::created_snapshot();
        (s.order.status, s.order.driver_id) = (OrderStatus::DriverAssigned, Some("D1".into()));
        s.order.next_attempt_at = None;
        let aboard = after(&s, actions::record_pickup(&s, &"D1".into()));
        assert_eq!(ids(&s, &aboard), Vec::<String>::new());
        let done = after(&aboard, actions::complete_trip(&aboard, &"D1".into()));
        assert_eq!(ids(&aboard, &done), ["lifetime:ORD-1"]);
        let mut late = aboard.clone();
        late.now = late.order.lifetime_deadline;
        let done = after(&late, actions::complete_trip(&late, &"D1".into()));
        assert_eq!(ids(&late, &done), Vec::<String>::new(), "the timer has already fired");
    }

    #[test]
    fn acknowledged_alert_supersedes_its_timer() {
        let mut s = fixture::created_snapshot();
        s.alerts = vec![PendingAlert { id: 7, kind: messages::TIMER_DEAD.to_owned(), next_escalation_at: s.now }];
        let mut settled = s.clone();
        settled.alerts.clear();
        assert_eq!(ids(&s, &settled), ["escalate:ORD-1:7"]);
        assert_eq!(timers::derive_timers(&settled).len(), 2);
    }
}
