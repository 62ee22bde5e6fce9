//! Times of an order to which the test clock of `dispatchq dev` moves. Pure.

use chrono::TimeDelta;
use serde::Deserialize;

use crate::{decide::OrderRefusal, order::Snapshot};

/// Time of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockTarget {
    /// End of the running attempt.
    AttemptDeadline,
    /// End of the search for a driver.
    Lifetime,
    /// Pickup of an order that was created for later.
    PickupAt,
}

/// Returns the time from now to the target; zero if the target has passed. Refused if the order has no such time, or is
/// under review, which stops its timers.
pub fn time_until_target(s: &Snapshot, target: ClockTarget) -> Result<TimeDelta, OrderRefusal> {
    let order = &s.order;
    let (time, allowed) = match target {
        ClockTarget::AttemptDeadline => (order.attempt_deadline, "a running attempt"),
        ClockTarget::Lifetime => {
            let ends = order.status.lacks_driver() && !order.lifetime_waived;
            (ends.then_some(order.lifetime_deadline), "states without a driver")
        }
        ClockTarget::PickupAt => {
            (order.pickup_at.filter(|_| !order.status.is_closed()), "open orders with a pickup_at")
        }
    };
    let time = time.filter(|_| !order.held_for_review);
    let time = time.ok_or(OrderRefusal::WrongState { status: order.status, allowed })?;
    Ok((time - s.now).max(TimeDelta::zero()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{OrderStatus, order::fixture};

    #[test]
    fn target_is_counted_from_now() {
        let mut s = fixture::created_snapshot();
        s.order.attempt_deadline = Some(s.now + TimeDelta::minutes(2));
        assert_eq!(time_until_target(&s, ClockTarget::AttemptDeadline), Ok(TimeDelta::minutes(2)));
        assert_eq!(time_until_target(&s, ClockTarget::Lifetime), Ok(s.order.lifetime_deadline - s.now));
        s.now = s.order.lifetime_deadline + TimeDelta::minutes(1);
        assert_eq!(time_until_target(&s, ClockTarget::Lifetime), Ok(TimeDelta::zero()));
    }

    #[test]
    fn order_without_the_time_is_refused() {
        let refused = |s: &Snapshot, target| {
            let refusal = time_until_target(s, target).unwrap_err();
            assert_eq!(refusal.error_code(), "WRONG_STATE");
        };
        let mut s = fixture::created_snapshot();
        refused(&s, ClockTarget::AttemptDeadline);
        refused(&s, ClockTarget::PickupAt);
        s.order.held_for_review = true;
        refused(&s, ClockTarget::Lifetime);
        s.order.held_for_review = false;
        s.order.status = OrderStatus::Completed;
        s.order.pickup_at = Some(s.now);
        for target in [ClockTarget::AttemptDeadline, ClockTarget::Lifetime, ClockTarget::PickupAt] {
            refused(&s, target);
        }
    }
}
