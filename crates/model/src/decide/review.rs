//! Hold and resume by staff. Pure.
//!
//! A hold stops the order's timers in every state. A resumed order continues as if it had just entered its state: the
//! search with a new attempt, a partner's trip with polls.

use crate::{
    actor::Actor,
    decide::{Change, Decision, OrderRefusal, requeue::resume_search},
    order::{EventReason, HoldCause, Snapshot},
};

/// Puts an open order under review. An order that is already under review keeps its reason.
pub fn hold_order(s: &Snapshot, actor: &Actor, why: &str) -> Decision {
    if s.order.status.is_closed() {
        return Decision::Refuse(OrderRefusal::OrderFinished(s.order.status));
    }
    if s.order.held_for_review {
        return Decision::Unchanged;
    }
    let mut change = Change::new(s, actor);
    change.hold_for_review(s, HoldCause::ByHand, why);
    change.into()
}

/// Ends the review of an order, whatever its cause. Refused after the lifetime, because the order would end
/// immediately.
pub fn resume_order(s: &Snapshot, actor: &Actor, why: &str) -> Decision {
    if s.order.status.is_closed() {
        return Decision::Refuse(OrderRefusal::OrderFinished(s.order.status));
    }
    if !s.order.held_for_review {
        return Decision::Unchanged;
    }
    let mut change = Change::new(s, actor);
    change.release_hold();
    if change.order.is_past_lifetime(s.now) {
        return Decision::Refuse(OrderRefusal::LifetimeOver);
    }
    change.record_event(EventReason::ResumedByHand, Some(why.to_owned()));
    resume_search(&mut change);
    change.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decide::timers,
        order::{OrderStatus, order::fixture},
    };

    fn anna() -> Actor {
        Actor::parse("dispatcher:anna")
    }

    #[track_caller]
    fn changed(decision: Decision) -> Change {
        match decision {
            Decision::Change(change) => *change,
            other => panic!("{other:?}"),
        }
    }

    fn timers_of(s: &Snapshot) -> Vec<String> {
        timers::derive_timers(s).iter().map(|timer| timer.id().to_string()).collect()
    }

    #[test]
    fn held_order_resumes_unchanged() {
        let s = fixture::created_snapshot();
        let held = s.apply(&changed(hold_order(&s, &anna(), "the customer calls back")));
        assert_eq!((held.order.held_reason.as_deref(), timers_of(&held)), (Some("the customer calls back"), vec![]));
        assert_eq!(held.order.hold_cause, Some(HoldCause::ByHand));
        assert_eq!(hold_order(&held, &anna(), "again"), Decision::Unchanged);

        let change = changed(resume_order(&held, &anna(), "all is well"));
        assert_eq!(change.events[0].detail.as_deref(), Some("all is well"));
        let resumed = held.apply(&change);
        assert_eq!(timers_of(&resumed), timers_of(&s));
        assert_eq!(resume_order(&resumed, &anna(), "again"), Decision::Unchanged);
    }

    #[test]
    fn expired_order_cannot_be_resumed() {
        let s = fixture::created_snapshot();
        let mut held = s.apply(&changed(hold_order(&s, &anna(), "wait")));
        held.now = held.order.lifetime_deadline;
        assert_eq!(resume_order(&held, &anna(), "go on"), Decision::Refuse(OrderRefusal::LifetimeOver));
    }

    #[test]
    fn closed_order_refuses_hold_and_resume() {
        for status in OrderStatus::ALL.into_iter().filter(|status| status.is_closed()) {
            let mut s = fixture::created_snapshot();
            s.order.status = status;
            let refused = Decision::Refuse(OrderRefusal::OrderFinished(status));
            assert_eq!(hold_order(&s, &anna(), "wait"), refused);
            assert_eq!(resume_order(&s, &anna(), "go on"), refused);
        }
    }
}
