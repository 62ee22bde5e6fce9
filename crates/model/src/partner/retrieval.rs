//! Reasons why a partner's order ended without a job id. Pure.
//!
//! Counters, the log and the refund alert take the reason from here, so that they agree.

use crate::order::{Booking, BookingState, OrderStatus, Snapshot};

/// Reason why a partner's order ended without a job id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum RetrievalFailure {
    /// The partner was polled for the job id until the lifetime ended.
    Timeout,
    /// The partner did not know the booking.
    NotFound,
    NeverBooked,
    /// The partner confirmed a booking, but its job id was never polled.
    NotPolled,
}

impl RetrievalFailure {
    pub const ALL: [Self; 4] = [Self::Timeout, Self::NotFound, Self::NeverBooked, Self::NotPolled];

    /// Value of the `reason` label and of the log field.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// Returns the failure that the change from `before` to `after` causes. An order that the system ends enters
    /// COMPENSATING once, so each order has at most one failure.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Option<Self> {
        let searched = !matches!(before.order.status, OrderStatus::Compensating | OrderStatus::Scheduled);
        let ends = searched && after.order.status == OrderStatus::Compensating;
        if ends { Self::of_ended(after) } else { None }
    }

    /// Returns why an order that the system ended has no job id. `None`: it had one, or our own fleet served it.
    pub fn of_ended(s: &Snapshot) -> Option<Self> {
        if s.order.partner.is_none() || s.had_job_id() {
            return None;
        }
        Some(if s.bookings.last().is_some_and(|booking| was_lost(s, booking)) {
            Self::NotFound
        } else if s.bookings.iter().all(|booking| booking.booked_at.is_none()) {
            Self::NeverBooked
        } else if s.order.job_id_asks == 0 {
            Self::NotPolled
        } else {
            Self::Timeout
        })
    }

    /// Describes the failure for support. The text for a timeout comes from the requirement document.
    pub fn describe(self, s: &Snapshot) -> String {
        let minutes = (s.order.lifetime_deadline - s.order.dispatch_start()).num_minutes();
        match self {
            Self::Timeout => format!("Job ID retrieval timeout after {minutes} minutes"),
            Self::NotFound => "Job ID retrieval failed: the partner does not know the booking".to_owned(),
            Self::NeverBooked => {
                format!("Job ID retrieval failed: the partner confirmed no booking within {minutes} minutes")
            }
            Self::NotPolled => format!(
                "Job ID retrieval failed: no callback came within {minutes} minutes, and the partner was not asked"
            ),
        }
    }
}

/// Returns whether the partner lost the booking while the order waited for its job id. A booking that is cancelled
/// after the order's end closes after the lifetime and does not count.
fn was_lost(s: &Snapshot, booking: &Booking) -> bool {
    booking.state == BookingState::Refused
        && booking.booking_id.is_some()
        && booking.closed_at.is_some_and(|at| at < s.order.lifetime_deadline)
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::order::order::fixture;

    /// Returns the failure of a partner's order at its end, with one booking in this state.
    fn ended(change: impl FnOnce(&mut Snapshot, &mut Booking)) -> Option<RetrievalFailure> {
        let mut s = fixture::partner_snapshot();
        s.order.status = OrderStatus::Compensating;
        s.order.attempt_no = 1;
        let mut booking = Booking::new_intent(1, "bbd".into(), s.now);
        change(&mut s, &mut booking);
        s.bookings.push(booking);
        RetrievalFailure::of_ended(&s)
    }

    fn booked(booking: &mut Booking) {
        booking.booking_id = Some("B-1".to_owned());
        booking.set_booked(booking.created_at);
    }

    // Rule L1: The reason is never_booked, not_polled, timeout or not_found, depending on what the partner did.
    #[test]
    fn ended_order_has_one_failure_reason() {
        assert_eq!(ended(|_, _| ()), Some(RetrievalFailure::NeverBooked));
        assert_eq!(ended(|_, b| booked(b)), Some(RetrievalFailure::NotPolled));
        let asked = |s: &mut Snapshot, b: &mut Booking| {
            s.order.job_id_asks = 3;
            booked(b);
        };
        assert_eq!(ended(asked), Some(RetrievalFailure::Timeout));
        let lost_after = |after: TimeDelta| {
            ended(|s, b| {
                asked(s, b);
                b.close_as(BookingState::Refused, s.order.created_at + after);
            })
        };
        assert_eq!(lost_after(TimeDelta::minutes(2)), Some(RetrievalFailure::NotFound));
        assert_eq!(lost_after(TimeDelta::minutes(31)), Some(RetrievalFailure::Timeout), "closed after the order's end");
    }

    // Rule L1: An order without any booking, whose partner was unreachable for its whole lifetime, is never_booked.
    #[test]
    fn order_without_booking_was_never_booked() {
        let mut s = fixture::partner_snapshot();
        s.order.status = OrderStatus::Compensating;
        assert_eq!(RetrievalFailure::of_ended(&s), Some(RetrievalFailure::NeverBooked));
        let words = RetrievalFailure::NeverBooked.describe(&s);
        assert_eq!(words, "Job ID retrieval failed: the partner confirmed no booking within 30 minutes");
    }

    // Rule L1: An order that had a job id, or that our own fleet served, does not count as a retrieval failure.
    #[test]
    fn served_orders_have_no_retrieval_failure() {
        assert_eq!(ended(|_, b| b.assigned_at = Some(b.created_at)), None);
        assert_eq!(ended(|s, _| s.order.partner = None), None);
    }
}
