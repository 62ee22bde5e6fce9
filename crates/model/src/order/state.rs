//! Allowed transitions between order states, in one table. docs/STATES.md draws it, and a test compares the two.
//!
//! `Orders::change` refuses every other transition. `check history` checks old histories against the same table.

use super::OrderStatus::{self, *};

/// Every allowed transition. `None` is the creation of the order.
pub const TRANSITIONS: [(Option<OrderStatus>, OrderStatus); 36] = [
    (None, Scheduled),
    (None, PendingJobId),
    (None, Dispatching),
    (Some(Scheduled), Dispatching),
    (Some(Scheduled), PendingJobId),
    (Some(Scheduled), Compensating),
    (Some(Scheduled), CancelledByUser),
    (Some(PendingJobId), Assigned),
    (Some(PendingJobId), Compensating),
    (Some(PendingJobId), CancelledByUser),
    (Some(Assigned), DriverAssigned),
    (Some(Assigned), PendingJobId),
    (Some(Assigned), Compensating),
    (Some(Assigned), CancelledByUser),
    (Some(Dispatching), DriverAssigned),
    (Some(Dispatching), Pending),
    (Some(Dispatching), Compensating),
    (Some(Dispatching), CancelledByUser),
    (Some(Pending), Dispatching),
    (Some(Pending), DriverAssigned),
    (Some(Pending), Compensating),
    (Some(Pending), CancelledByUser),
    (Some(DriverAssigned), PickedUp),
    (Some(DriverAssigned), Dispatching),
    (Some(DriverAssigned), PendingJobId),
    (Some(DriverAssigned), CancelledByUser),
    (Some(DriverAssigned), CancelledByDriver),
    (Some(PickedUp), Completed),
    (Some(PickedUp), CancelledByUser),
    (Some(Compensating), CancelledBySystem),
    (Some(Compensating), CancelledBySystemAfterPayment),
    (Some(CancelledBySystem), CancelledBySystemAfterPayment),
    (Some(CancelledBySystemAfterPayment), RefundPending),
    (Some(CancelledByUser), RefundPending),
    (Some(CancelledByDriver), RefundPending),
    (Some(RefundPending), Refunded),
];

/// Returns whether an order may change from `from` to `to`. Staying in the same state is always allowed.
pub fn is_transition_allowed(from: Option<OrderStatus>, to: OrderStatus) -> bool {
    from == Some(to) || TRANSITIONS.contains(&(from, to))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_status_is_reachable_by_distinct_transitions() {
        let reached: HashSet<_> = TRANSITIONS.iter().map(|(_, to)| *to).collect();
        assert_eq!(reached.len(), OrderStatus::ALL.len());
        assert_eq!(TRANSITIONS.iter().collect::<HashSet<_>>().len(), TRANSITIONS.len());
    }

    #[test]
    fn closed_order_never_dispatches_again() {
        for (from, to) in TRANSITIONS {
            if from.is_some_and(OrderStatus::is_closed) {
                assert!(to.is_closed(), "{from:?} -> {to}");
            }
        }
    }

    #[test]
    fn every_open_status_can_close() {
        for start in OrderStatus::ALL {
            let mut seen = HashSet::from([start]);
            loop {
                let next: Vec<_> = TRANSITIONS
                    .iter()
                    .filter(|(f, t)| f.is_some_and(|f| seen.contains(&f)) && !seen.contains(t))
                    .collect();
                if next.is_empty() {
                    break;
                }
                seen.extend(next.into_iter().map(|(_, t)| *t));
            }
            assert!(seen.iter().any(|s| s.is_closed()), "{start} never ends");
        }
    }

    #[test]
    fn drawn_transitions_match_the_table() {
        let drawn: HashSet<(Option<OrderStatus>, OrderStatus)> = include_str!("../../../../docs/STATES.md")
            .lines()
            .filter_map(|line| line.trim().split_once("-->"))
            .filter_map(|(from, to)| {
                let to = to.split(':').next()?.trim();
                let from = from.trim();
                (to != "[*]").then(|| ((from != "[*]").then(|| from.parse().unwrap()), to.parse().unwrap()))
            })
            .collect();
        let table: HashSet<_> = TRANSITIONS.into_iter().collect();
        assert_eq!(
            drawn.symmetric_difference(&table).collect::<Vec<_>>(),
            Vec::<&(Option<OrderStatus>, OrderStatus)>::new()
        );
    }
}
