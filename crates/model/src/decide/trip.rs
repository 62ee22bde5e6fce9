//! Stale trips: the driver disappeared after accepting, or with the passenger aboard. Pure.
//!
//! An order with a driver has a deadline for its next step. The deadline is much longer than a trip, so it needs no
//! timer in Redis while the trip proceeds. The job is derived after the deadline, and the reconciler enqueues it.
//! Support is notified once per step and decides. The driver may still continue.

use chrono::{DateTime, TimeDelta, Utc};

use crate::{
    actor::Actor,
    decide::Change,
    messages,
    order::{EventReason, OrderStatus, Snapshot},
    policy::DispatchPolicy,
};

/// Returns when the next step of an order that has just entered `status` is overdue; `None` if there is no limit.
pub fn step_deadline(policy: &DispatchPolicy, status: OrderStatus, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let within = match status {
        OrderStatus::DriverAssigned => policy.pickup_within,
        OrderStatus::PickedUp => policy.completion_within,
        _ => return None,
    };
    if within.is_zero() { None } else { now.checked_add_signed(TimeDelta::from_std(within).ok()?) }
}

/// Records that the next step of the trip is overdue, and notifies support.
pub fn report_stale_trip(s: &Snapshot) -> Change {
    let step = if s.order.status == OrderStatus::PickedUp { "completed" } else { "picked up" };
    let driver = s.order.driver_id.as_deref().unwrap_or("the driver");
    let why = format!("not {step} in time by {driver}");
    let mut change = Change::new(s, Actor::SYSTEM);
    change.order.trip_deadline = None;
    change.record_event(EventReason::TripStale, Some(why.clone()));
    change.notify(messages::stale_trip(&change.order, &why, s.now));
    change
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{decide::timers, order::order::fixture, policy};

    #[test]
    fn trip_steps_have_separate_deadlines() {
        let now = fixture::created_snapshot().now;
        let mut policy = policy::example_policy();
        let hours =
            |policy: &DispatchPolicy, status| step_deadline(policy, status, now).map(|at| (at - now).num_hours());
        assert_eq!(hours(&policy, OrderStatus::DriverAssigned), Some(12));
        assert_eq!(hours(&policy, OrderStatus::PickedUp), Some(6));
        assert_eq!(hours(&policy, OrderStatus::Dispatching), None);
        policy.pickup_within = Duration::ZERO;
        assert_eq!(hours(&policy, OrderStatus::DriverAssigned), None);
    }

    #[test]
    fn stale_trip_notifies_once() {
        let mut s = fixture::created_snapshot();
        s.order.status = OrderStatus::DriverAssigned;
        s.order.next_attempt_at = None;
        s.order.trip_deadline = Some(s.now);
        let ids = |s: &Snapshot| timers::derive_timers(s).iter().map(|t| t.id().to_string()).collect::<Vec<_>>();
        assert_eq!(ids(&s), ["trip:ORD-1"]);
        let change = report_stale_trip(&s);
        assert_eq!(change.messages[0].kind(), messages::STALE_TRIP);
        s.order = change.order;
        assert_eq!(ids(&s), Vec::<String>::new());
    }
}
