//! Whether a dead job of an order may be requeued. Pure.
//!
//! The row decides. A job that the order still waits for may run again. A job that caused the review of its order ends
//! the review. Any other dead job would be superseded, so it is refused and should be discarded.

use chrono::{DateTime, SecondsFormat, Utc};
use job_contract::{Job, JobId};
use jobs::{ExpireOrder, OrderId};
use serde::Serialize;

use crate::{
    actor::Actor,
    decide::{Change, timers},
    messages::OutboxState,
    order::{EventReason, Order, OrderStatus, Snapshot},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequeuePermission {
    Wanted,
    /// The job may run again, and the review that it caused ends.
    Held,
    Refused(RequeueRefusal),
}

/// Reason why a dead job may not be requeued. The text names the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize)]
#[serde(tag = "code", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RequeueRefusal {
    #[error("{order} is {status}: nothing is left to do for this job; discard it")]
    OrderClosed { order: OrderId, status: OrderStatus },
    #[error("{order} is {status} and no longer waits for this job; discard it")]
    Superseded { order: OrderId, status: OrderStatus },
    #[error(
        "{order} is under review for another reason ({reason}); decide on that first: dispatchq order show {order}"
    )]
    UnderReview { order: OrderId, reason: String },
    #[error(
        "the lifetime of {order} ended at {at} without a driver: run again, the job would have the system cancel the \
         order (LIFETIME_TIMEOUT); decide yourself: dispatchq order assign {order} --driver ID, or dispatchq order \
         cancel {order}",
        at = at.to_rfc3339_opts(SecondsFormat::Secs, true)
    )]
    LifetimeOver { order: OrderId, at: DateTime<Utc> },
    #[error("there is no order {order}; discard it")]
    NoOrder { order: OrderId },
    #[error("its message is gone; discard it")]
    NoMessage,
    #[error("its message is {state}: nothing is left to send; discard it")]
    MessageDone { state: OutboxState },
    #[error("its alert is gone; discard it")]
    NoAlert,
    #[error("its alert is acknowledged and is not repeated; discard it")]
    AlertAcknowledged,
    #[error("its alert was repeated the maximum number of times; discard it")]
    AlertToldOften,
    #[error("its message is an offer that no driver can answer anymore; discard it")]
    OfferGone,
}

/// Returns whether requeuing the job ends the review of the order. It does if the job caused the review. After the
/// lifetime, the lifetime job does too, because it ends the order whichever timer is dead.
fn ends_review(s: &Snapshot, job: &JobId) -> bool {
    s.order.dead_timer().is_some_and(|dead| {
        dead == *job || (job.kind() == ExpireOrder::KIND && without_hold(&s.order).is_past_lifetime(s.now))
    })
}

/// Returns whether this timer of the order may run again.
pub fn check_timer(s: &Snapshot, job: &JobId) -> RequeuePermission {
    let order = || s.order.id.clone();
    let status = s.order.status;
    let verdict = if s.order.held_for_review {
        if !ends_review(s, job) {
            let reason = s.order.held_reason.clone().unwrap_or_default();
            return RequeuePermission::Refused(RequeueRefusal::UnderReview { order: order(), reason });
        }
        RequeuePermission::Held
    } else if timers::derive_timers(s).iter().any(|t| t.id() == job) {
        RequeuePermission::Wanted
    } else if status.is_closed() {
        return RequeuePermission::Refused(RequeueRefusal::OrderClosed { order: order(), status });
    } else {
        return RequeuePermission::Refused(RequeueRefusal::Superseded { order: order(), status });
    };
    // After the lifetime, only the lifetime job may run again. It ends the order.
    if job.kind() != ExpireOrder::KIND && without_hold(&s.order).is_past_lifetime(s.now) {
        return RequeuePermission::Refused(RequeueRefusal::LifetimeOver {
            order: order(),
            at: s.order.lifetime_deadline,
        });
    }
    verdict
}

fn without_hold(order: &Order) -> Order {
    Order { held_for_review: false, held_reason: None, hold_cause: None, ..order.clone() }
}

/// Returns the change for requeuing the job. The history records the actor and the reason. If the job caused the review
/// of the order, the review ends. The attempt that ran before the hold has ended, so the search resumes with a new one.
pub fn requeue_change(s: &Snapshot, job: &JobId, actor: &Actor, why: Option<&str>) -> Change {
    let mut change = Change::new(s, actor);
    if ends_review(s, job) {
        change.release_hold();
        resume_search(&mut change);
    }
    let detail = why.map_or_else(|| job.to_string(), |why| format!("{job}: {why}"));
    change.record_event(EventReason::RequeuedByHand, Some(detail));
    change
}

/// Restarts the work that the hold stopped: the search with a new attempt, or the polls about a partner's trip.
pub(super) fn resume_search(change: &mut Change) {
    let (now, order) = (change.at, &mut change.order);
    match order.status {
        OrderStatus::Dispatching | OrderStatus::PendingJobId if order.attempt_deadline.is_none() => {
            order.next_attempt_at.get_or_insert(now);
        }
        OrderStatus::Scheduled => {
            order.next_attempt_at.get_or_insert(now.max(order.dispatch_start()));
        }
        OrderStatus::Assigned => {
            (order.job_id, order.next_attempt_at) = (None, Some(now));
            change.transition_to(OrderStatus::PendingJobId, EventReason::Redispatched, None);
        }
        OrderStatus::DriverAssigned | OrderStatus::PickedUp if order.partner.is_some() => {
            order.next_poll_at.get_or_insert(now);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::{
        actor::ActorRole,
        order::{HoldCause, order::fixture},
    };

    fn job(text: &str) -> JobId {
        JobId::parse(text).unwrap()
    }

    fn held_by(text: &str) -> Snapshot {
        let mut s = fixture::created_snapshot();
        let mut change = Change::new(&s, Actor::RECONCILER);
        let dead = job(text);
        change.hold_for_review(&s, HoldCause::DeadTimer(dead.clone()), HoldCause::dead_timer_reason(&dead));
        s.order = change.order;
        s
    }

    #[test]
    fn only_awaited_jobs_may_be_requeued() {
        let s = fixture::created_snapshot();
        assert_eq!(check_timer(&s, &job("dispatch:ORD-1:1")), RequeuePermission::Wanted);
        let superseded = RequeueRefusal::Superseded { order: s.order.id.clone(), status: OrderStatus::Dispatching };
        assert_eq!(check_timer(&s, &job("timeout:ORD-1:1")), RequeuePermission::Refused(superseded));
    }

    #[test]
    fn closed_order_refuses_every_requeue() {
        for status in OrderStatus::ALL.into_iter().filter(|s| s.is_closed()) {
            let mut s = fixture::created_snapshot();
            s.order.status = status;
            let verdict = check_timer(&s, &job("lifetime:ORD-1"));
            assert!(
                matches!(verdict, RequeuePermission::Refused(RequeueRefusal::OrderClosed { .. })),
                "{status}: {verdict:?}"
            );
        }
    }

    #[test]
    fn only_the_job_that_caused_the_review_ends_it() {
        let s = held_by("dispatch:ORD-1:1");
        assert_eq!(check_timer(&s, &job("dispatch:ORD-1:1")), RequeuePermission::Held);
        let RequeuePermission::Refused(refused) = check_timer(&s, &job("dispatch:ORD-1:11")) else {
            panic!("not the cause")
        };
        assert!(refused.to_string().contains("dispatch:ORD-1:1 is dead"), "{refused}");

        let mut other = fixture::created_snapshot();
        other.order.held_for_review = true;
        other.order.held_reason = Some("the payment is odd".to_owned());
        other.order.hold_cause = Some(HoldCause::UnknownPayment);
        assert!(matches!(
            check_timer(&other, &job("dispatch:ORD-1:1")),
            RequeuePermission::Refused(RequeueRefusal::UnderReview { .. })
        ));
    }

    #[test]
    fn requeued_order_has_its_timers_again() {
        for dead in ["dispatch:ORD-1:1", "lifetime:ORD-1"] {
            let s = held_by(dead);
            let after = Snapshot {
                order: requeue_change(&s, &job(dead), &Actor::with_fixed_name(ActorRole::Operator, "test"), None).order,
                ..s
            };
            let ids: Vec<_> = timers::derive_timers(&after).iter().map(|t| t.id().to_string()).collect();
            assert_eq!(ids, ["dispatch:ORD-1:1", "lifetime:ORD-1"], "{dead}");
        }
    }

    #[test]
    fn only_lifetime_job_requeues_after_lifetime() {
        for held in [false, true] {
            for (text, lifetimes_own) in [("dispatch:ORD-1:1", false), ("lifetime:ORD-1", true)] {
                let mut s = if held { held_by(text) } else { fixture::created_snapshot() };
                s.now = s.order.lifetime_deadline + TimeDelta::milliseconds(1);
                let refused = matches!(
                    check_timer(&s, &job(text)),
                    RequeuePermission::Refused(RequeueRefusal::LifetimeOver { .. })
                );
                assert_eq!(refused, !lifetimes_own, "{text}, held: {held}");
            }
        }
    }

    #[test]
    fn lifetime_job_requeues_despite_other_dead_timer() {
        let mut s = held_by("dispatch:ORD-1:1");
        assert!(matches!(
            check_timer(&s, &job("lifetime:ORD-1")),
            RequeuePermission::Refused(RequeueRefusal::UnderReview { .. })
        ));
        s.now = s.order.lifetime_deadline;
        assert_eq!(check_timer(&s, &job("lifetime:ORD-1")), RequeuePermission::Held);
        assert!(
            !requeue_change(&s, &job("lifetime:ORD-1"), &Actor::with_fixed_name(ActorRole::Operator, "test"), None)
                .order
                .held_for_review
        );
    }

    #[test]
    fn requeue_records_actor_and_reason() {
        let s = fixture::created_snapshot();
        let change = requeue_change(
            &s,
            &job("dispatch:ORD-1:1"),
            &Actor::with_fixed_name(ActorRole::Operator, "anna"),
            Some("routing is back"),
        );
        assert_eq!(change.actor.to_string(), "operator:anna");
        assert_eq!(change.events[0].detail.as_deref(), Some("dispatch:ORD-1:1: routing is back"));
    }
}
