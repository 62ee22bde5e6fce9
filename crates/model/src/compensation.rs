//! Final status of an order the system ended, and who is told, by its payment. Pure.
//!
//! Source: the compensation decision logic of the job id retrieval design. A payment status that the rules do not know
//! is decided by a person: the order is held, its status not guessed.

use crate::{
    actor::Actor,
    decide::Change,
    messages::{self, CancelCause},
    order::{EventReason, HoldCause, OrderStatus, PaymentStatus, Snapshot},
    partner::RetrievalFailure,
};

/// Why the order ends: for support, in the words of the requirement where they fit, and for the customer.
fn describe_end(s: &Snapshot) -> (String, CancelCause) {
    match RetrievalFailure::of_ended(s) {
        Some(failure) => (failure.describe(s), CancelCause::NotConfirmed),
        None => ("no driver within the lifetime of the order".to_owned(), CancelCause::NoDriver),
    }
}

pub fn compensate_order(s: &Snapshot) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    match &s.order.payment_status {
        PaymentStatus::Paid | PaymentStatus::Settlement => {
            change.transition_to(
                OrderStatus::CancelledBySystemAfterPayment,
                EventReason::CompensatedAfterPayment,
                None,
            );
            tell_end(&mut change, s);
        }
        PaymentStatus::Pending | PaymentStatus::Unpaid => {
            change.transition_to(OrderStatus::CancelledBySystem, EventReason::CompensatedUnpaid, None);
            tell_end(&mut change, s);
        }
        PaymentStatus::Other(word) => {
            let why = format!("payment status {word} is not one the rules know");
            change.hold_for_review(s, HoldCause::UnknownPayment, why.clone());
            change.notify(messages::unexpected_state(&change.order, &why, s.now));
        }
    }
    change
}

fn tell_end(change: &mut Change, s: &Snapshot) {
    let (why, cause) = describe_end(s);
    for message in messages::cancelled_by_system(&change.order, &why, cause, change.at) {
        change.notify(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decide::timers,
        order::{Booking, order::fixture},
    };

    fn compensated(payment: &str) -> Change {
        let mut s = fixture::created_snapshot();
        s.order.status = OrderStatus::Compensating;
        s.order.next_attempt_at = None;
        s.order.payment_status = payment.to_owned().try_into().unwrap();
        compensate_order(&s)
    }

    #[test]
    fn a_paid_order_goes_to_support() {
        for payment in ["PAID", "SETTLEMENT"] {
            let change = compensated(payment);
            assert_eq!(change.order.status, OrderStatus::CancelledBySystemAfterPayment);
            assert_eq!(change.order.closed_at, Some(change.at));
            let kinds: Vec<_> = change.messages.iter().map(messages::Message::kind).collect();
            let told = [messages::MANUAL_REFUND_REQUIRED, messages::CANCELLED_AFTER_PAYMENT, messages::ORDER_CANCELLED];
            assert_eq!(kinds, told);
        }
    }

    #[test]
    fn an_unpaid_order_needs_nobody_and_its_customer_is_told() {
        for payment in ["PENDING", "UNPAID"] {
            let change = compensated(payment);
            assert_eq!(change.order.status, OrderStatus::CancelledBySystem);
            let kinds: Vec<_> = change.messages.iter().map(messages::Message::kind).collect();
            assert_eq!(kinds, [messages::ORDER_CANCELLED]);
        }
    }

    #[test]
    fn an_order_without_a_job_id_ends_for_want_of_it() {
        let mut s = fixture::partner_snapshot();
        s.order.status = OrderStatus::Compensating;
        s.order.next_attempt_at = None;
        s.order.payment_status = PaymentStatus::Paid;
        s.order.job_id_asks = 30;
        let mut booking = Booking::new_intent(1, "bbd".into(), s.now);
        booking.set_booked(s.now);
        s.bookings.push(booking);
        let change = compensate_order(&s);
        assert_eq!(change.messages[0].body.to_payload()["reason"], "Job ID retrieval timeout after 30 minutes");
        assert_eq!(change.messages[1].body.to_payload()["total_attempts"], 30);
        assert_eq!(change.messages[2].body.to_payload()["cause"], "not_confirmed", "the customer needs no job ids");
    }

    #[test]
    fn an_unknown_payment_is_held_for_a_person_and_its_status_not_guessed() {
        let change = compensated("DISPUTE");
        assert_eq!(change.order.status, OrderStatus::Compensating);
        assert!(change.order.held_for_review);
        assert_eq!(change.messages[0].kind(), messages::UNEXPECTED_STATE);
        assert_eq!(timers::order_timers(&change.order, change.at), []);
    }
}
