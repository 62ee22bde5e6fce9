//! May a dead job of an order have another life? Pure.
//!
//! The row decides. A job the order still waits for may run again; one that put its order under review takes it out of
//! review first; whatever else is dead would find itself superseded, and is better discarded.

use chrono::{DateTime, SecondsFormat, Utc};
use jobs::{Lifetime, OrderId};
use serde::Serialize;
use workers::{Job, JobId};

use crate::{
    notifications::{alerts::Alert, messages::OFFER, outbox::OutboxRow},
    orders::{Change, Order, Reason, Snapshot, Status, timers},
    people::actor::Actor,
};

/// What may be done with a dead job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may run again.
    Wanted,
    /// Its order is under review because it died: both may go on.
    Held,
    Refused(Refused),
}

/// Why a dead job is not given another life. The text says what to do instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize)]
#[serde(tag = "code", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Refused {
    #[error("{order} is {status}: nothing is left to do for this job; discard it")]
    OrderClosed { order: OrderId, status: Status },
    #[error("{order} is {status} and no longer waits for this job; discard it")]
    Superseded { order: OrderId, status: Status },
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
    MessageDone { state: String },
    #[error("its alert is gone; discard it")]
    NoAlert,
    #[error("its alert is acknowledged and is not told again; discard it")]
    AlertAcknowledged,
    #[error("its alert was told as often as it is to be told; discard it")]
    AlertToldOften,
    #[error("its message is an offer that no driver can answer any more; discard it")]
    OfferGone,
}

const HOLD_PREFIX: &str = "its timer ";
const HOLD_SUFFIX: &str = " is dead";

/// Why an order is under review whose timer is dead, as its row says.
pub fn hold_reason(job: &JobId) -> String {
    format!("{HOLD_PREFIX}{job}{HOLD_SUFFIX}; see: dispatchq dead show {job}")
}

/// The timer whose death put an order under review, if that is why.
pub fn hold_cause(order: &Order) -> Option<&str> {
    let reason = order.held_reason.as_deref().filter(|_| order.held_for_review)?;
    Some(reason.strip_prefix(HOLD_PREFIX)?.split_once(HOLD_SUFFIX)?.0)
}

/// Does the order's review end with this job's other life? It does if the job caused it; and past the lifetime the
/// lifetime's own job ends the order, whichever of its timers is dead beside it.
fn ends_review(s: &Snapshot, job: &JobId) -> bool {
    hold_cause(&s.order).is_some_and(|cause| {
        cause == job.as_str() || (job.kind() == Lifetime::KIND && without_hold(&s.order).is_past_lifetime(s.now))
    })
}

/// May this timer of the order run again?
pub fn timer(s: &Snapshot, job: &JobId) -> Verdict {
    let order = || s.order.id.clone();
    let status = s.order.status;
    let verdict = if s.order.held_for_review {
        if !ends_review(s, job) {
            let reason = s.order.held_reason.clone().unwrap_or_default();
            return Verdict::Refused(Refused::UnderReview { order: order(), reason });
        }
        Verdict::Held
    } else if timers::derived(s).iter().any(|t| t.id() == job) {
        Verdict::Wanted
    } else if status.is_closed() {
        return Verdict::Refused(Refused::OrderClosed { order: order(), status });
    } else {
        return Verdict::Refused(Refused::Superseded { order: order(), status });
    };
    // The lifetime's own job does what there is to do then: that is what it is for.
    if job.kind() != Lifetime::KIND && without_hold(&s.order).is_past_lifetime(s.now) {
        return Verdict::Refused(Refused::LifetimeOver { order: order(), at: s.order.lifetime_deadline });
    }
    verdict
}

fn without_hold(order: &Order) -> Order {
    Order { held_for_review: false, held_reason: None, ..order.clone() }
}

/// May this message be sent after all? `None`: there is no such message.
pub fn message(row: Option<&OutboxRow>) -> Verdict {
    let Some(row) = row else { return Verdict::Refused(Refused::NoMessage) };
    if !matches!(row.state.as_str(), "pending" | "dead") {
        Verdict::Refused(Refused::MessageDone { state: row.state.clone() })
    } else if row.kind == OFFER && (row.offer_is_live != Some(true) || row.now >= row.expires_at) {
        Verdict::Refused(Refused::OfferGone)
    } else {
        Verdict::Wanted
    }
}

/// May this alert be told again after all? `None`: there is no such alert.
pub fn alert(row: Option<&Alert>) -> Verdict {
    match row {
        None => Verdict::Refused(Refused::NoAlert),
        Some(row) if row.acked_at.is_some() => Verdict::Refused(Refused::AlertAcknowledged),
        Some(row) if row.next_escalation_at.is_none() => Verdict::Refused(Refused::AlertToldOften),
        Some(_) => Verdict::Wanted,
    }
}

/// What giving the job another life changes in its order: the history says who did it and why, and an order that was
/// under review because of it goes on. The attempt that ran when it was held has ended; the search resumes.
pub fn requeue(s: &Snapshot, job: &JobId, actor: &Actor, why: Option<&str>) -> Change {
    let mut change = Change::new(s, actor);
    if ends_review(s, job) {
        change.release_hold();
        resume_search(&mut change);
    }
    let detail = why.map_or_else(|| job.to_string(), |why| format!("{job}: {why}"));
    change.record_event(Reason::RequeuedByHand, Some(detail));
    change
}

/// What holding stopped goes on: the search with a new attempt, a partner's trip with being asked for.
fn resume_search(change: &mut Change) {
    let (now, order) = (change.at, &mut change.order);
    match order.status {
        Status::Dispatching | Status::PendingJobId if order.attempt_deadline.is_none() => {
            order.next_attempt_at.get_or_insert(now);
        }
        Status::Assigned => {
            (order.job_id, order.next_attempt_at) = (None, Some(now));
            change.transition_to(Status::PendingJobId, Reason::Redispatched, None);
        }
        Status::DriverAssigned | Status::PickedUp if order.partner.is_some() => {
            order.next_poll_at.get_or_insert(now);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::{orders::order::fixture, people::actor::ActorRole};

    fn job(text: &str) -> JobId {
        JobId::parse(text).unwrap()
    }

    fn held_by(text: &str) -> Snapshot {
        let mut s = fixture::snapshot();
        let mut change = Change::new(&s, Actor::RECONCILER);
        change.hold(&s, hold_reason(&job(text)));
        s.order = change.order;
        s
    }

    #[test]
    fn what_an_order_waits_for_may_run_again_and_nothing_else() {
        let s = fixture::snapshot();
        assert_eq!(timer(&s, &job("dispatch:ORD-1:1")), Verdict::Wanted);
        let superseded = Refused::Superseded { order: s.order.id.clone(), status: Status::Dispatching };
        assert_eq!(timer(&s, &job("timeout:ORD-1:1")), Verdict::Refused(superseded));
    }

    #[test]
    fn a_closed_order_wants_nothing() {
        for status in Status::ALL.into_iter().filter(|s| s.is_closed()) {
            let mut s = fixture::snapshot();
            s.order.status = status;
            let verdict = timer(&s, &job("lifetime:ORD-1"));
            assert!(matches!(verdict, Verdict::Refused(Refused::OrderClosed { .. })), "{status}: {verdict:?}");
        }
    }

    #[test]
    fn only_the_job_that_caused_the_review_ends_it() {
        let s = held_by("dispatch:ORD-1:1");
        assert_eq!(timer(&s, &job("dispatch:ORD-1:1")), Verdict::Held);
        let Verdict::Refused(refused) = timer(&s, &job("dispatch:ORD-1:11")) else { panic!("not the cause") };
        assert!(refused.to_string().contains("dispatch:ORD-1:1 is dead"), "{refused}");

        let mut other = fixture::snapshot();
        other.order.held_for_review = true;
        other.order.held_reason = Some("the payment is odd".to_owned());
        assert!(matches!(timer(&other, &job("dispatch:ORD-1:1")), Verdict::Refused(Refused::UnderReview { .. })));
    }

    #[test]
    fn an_order_that_goes_on_has_its_timers_again() {
        for dead in ["dispatch:ORD-1:1", "lifetime:ORD-1"] {
            let s = held_by(dead);
            let after = Snapshot {
                order: requeue(&s, &job(dead), &Actor::named(ActorRole::Operator, "test"), None).order,
                ..s
            };
            let ids: Vec<_> = timers::derived(&after).iter().map(|t| t.id().to_string()).collect();
            assert_eq!(ids, ["dispatch:ORD-1:1", "lifetime:ORD-1"], "{dead}");
        }
    }

    #[test]
    fn past_the_lifetime_only_the_lifetimes_own_job_runs_again() {
        for held in [false, true] {
            for (text, lifetimes_own) in [("dispatch:ORD-1:1", false), ("lifetime:ORD-1", true)] {
                let mut s = if held { held_by(text) } else { fixture::snapshot() };
                s.now = s.order.lifetime_deadline + TimeDelta::milliseconds(1);
                let refused = matches!(timer(&s, &job(text)), Verdict::Refused(Refused::LifetimeOver { .. }));
                assert_eq!(refused, !lifetimes_own, "{text}, held: {held}");
            }
        }
    }

    #[test]
    fn past_the_lifetime_its_own_job_ends_the_order_whatever_else_is_dead() {
        let mut s = held_by("dispatch:ORD-1:1");
        assert!(matches!(timer(&s, &job("lifetime:ORD-1")), Verdict::Refused(Refused::UnderReview { .. })));
        s.now = s.order.lifetime_deadline;
        assert_eq!(timer(&s, &job("lifetime:ORD-1")), Verdict::Held);
        assert!(
            !requeue(&s, &job("lifetime:ORD-1"), &Actor::named(ActorRole::Operator, "test"), None)
                .order
                .held_for_review
        );
    }

    #[test]
    fn a_requeue_says_who_and_why() {
        let s = fixture::snapshot();
        let change =
            requeue(&s, &job("dispatch:ORD-1:1"), &Actor::named(ActorRole::Operator, "anna"), Some("routing is back"));
        assert_eq!(change.actor.to_string(), "operator:anna");
        assert_eq!(change.events[0].detail.as_deref(), Some("dispatch:ORD-1:1: routing is back"));
    }
}
