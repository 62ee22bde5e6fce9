//! Final status and messages of an order that the system ended, by its payment. Pure. Design: docs/design/payments.md.
//!
//! Source: the compensation decision logic of the job id retrieval design. An order that was ever paid owes a refund,
//! whatever its current payment status is. An order without a payment and with an unknown word is held for a person.

use crate::{
    actor::Actor,
    decide::Change,
    messages::{self, CancelCause},
    order::{EventReason, HoldCause, OrderStatus, Snapshot},
    partner::RetrievalFailure,
};

/// Returns why the order ends: as text for support, in the requirement's words where they fit, and as the cause for the
/// customer.
fn describe_end(s: &Snapshot) -> (String, CancelCause) {
    match RetrievalFailure::of_ended(s) {
        Some(failure) => (failure.describe(s), CancelCause::NotConfirmed),
        None => ("no driver within the lifetime of the order".to_owned(), CancelCause::NoDriver),
    }
}

pub fn compensate_order(s: &Snapshot) -> Change {
    let mut change = Change::new(s, Actor::SYSTEM);
    if s.order.owes_refund() {
        change.transition_to(OrderStatus::CancelledBySystemAfterPayment, EventReason::CompensatedAfterPayment, None);
        tell_end(&mut change, s);
    } else if s.order.is_payment_unclear() {
        let why = format!("payment status {} is unknown to the rules", s.order.payment_status);
        change.hold_for_review(s, HoldCause::UnknownPayment, why.clone());
        change.notify(messages::unexpected_state(&change.order, &why, s.now));
    } else {
        change.transition_to(OrderStatus::CancelledBySystem, EventReason::CompensatedUnpaid, None);
        tell_end(&mut change, s);
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
        order::{Booking, PaymentStatus, order::fixture},
    };

    fn compensated(payment: &str) -> Change {
        let mut s = fixture::created_snapshot();
        s.order.status = OrderStatus::Compensating;
        s.order.next_attempt_at = None;
        s.order.payment_status = payment.to_owned().try_into().unwrap();
        compensate_order(&s)
    }

    #[test]
    fn paid_order_alerts_support() {
        for payment in ["PAID", "SETTLEMENT"] {
            let change = compensated(payment);
            assert_eq!(change.order.status, OrderStatus::CancelledBySystemAfterPayment);
            assert_eq!(change.order.closed_at, Some(change.at));
            let kinds: Vec<_> = change.messages.iter().map(messages::Message::kind).collect();
            let told = [messages::MANUAL_REFUND_REQUIRED, messages::CANCELLED_AFTER_PAYMENT, messages::ORDER_CANCELLED];
            assert_eq!(kinds, told);
        }
    }

    // Rule F13: If the system ends an order that was ever paid, a refund is due, whatever its payment status is then.
    // Rule F16: If the system ends a paid order with amount 0, no refund is due.
    #[test]
    fn system_end_follows_the_first_payment() {
        for (word, amount, status) in [
            ("DISPUTE", Some(1), OrderStatus::CancelledBySystemAfterPayment),
            ("REFUNDED", None, OrderStatus::CancelledBySystemAfterPayment),
            ("PAID", Some(0), OrderStatus::CancelledBySystem),
            ("DISPUTE", Some(0), OrderStatus::CancelledBySystem),
        ] {
            let mut s = fixture::created_snapshot();
            (s.order.status, s.order.next_attempt_at) = (OrderStatus::Compensating, None);
            s.order.amount_minor = amount;
            s.order.set_payment(PaymentStatus::Paid, s.now);
            s.order.set_payment(word.to_owned().try_into().unwrap(), s.now);
            let change = compensate_order(&s);
            assert_eq!(change.order.status, status, "{word} {amount:?}");
            let alerts = change.messages.iter().filter(|m| m.kind() == messages::MANUAL_REFUND_REQUIRED).count();
            assert_eq!(alerts, usize::from(status == OrderStatus::CancelledBySystemAfterPayment), "{word} {amount:?}");
        }
    }

    #[test]
    fn unpaid_order_notifies_only_the_customer() {
        for payment in ["PENDING", "UNPAID"] {
            let change = compensated(payment);
            assert_eq!(change.order.status, OrderStatus::CancelledBySystem);
            let kinds: Vec<_> = change.messages.iter().map(messages::Message::kind).collect();
            assert_eq!(kinds, [messages::ORDER_CANCELLED]);
        }
    }

    #[test]
    fn order_without_job_id_names_that_cause() {
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
    fn unknown_payment_is_held_for_review() {
        let change = compensated("DISPUTE");
        assert_eq!(change.order.status, OrderStatus::Compensating);
        assert!(change.order.held_for_review);
        assert_eq!(change.messages[0].kind(), messages::UNEXPECTED_STATE);
        assert_eq!(timers::order_timers(&change.order, change.at), []);
    }
}
