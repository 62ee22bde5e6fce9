//! Debt of an order: whether it was ever paid, and the progress of its refund.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{Order, OrderStatus, PaymentStatus};

/// State of a refund. The SQL list of refunds applies the same rule; a test compares the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum RefundProgress {
    /// The order was paid and ended without a ride. The refund has not started.
    Owed,
    Started,
    /// The money was returned.
    Completed,
}

impl RefundProgress {
    pub const ALL: [Self; 3] = [Self::Owed, Self::Started, Self::Completed];

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Order {
    /// Stores a payment status. The time of the first payment never changes.
    pub fn set_payment(&mut self, word: PaymentStatus, at: DateTime<Utc>) {
        if self.paid_at.is_none() && (word.is_paid() || self.payment_status.is_paid()) {
            self.paid_at = Some(at);
        }
        self.payment_status = word;
    }

    /// Returns whether the order was ever paid, whatever its current payment status is.
    pub fn was_ever_paid(&self) -> bool {
        self.paid_at.is_some() || self.payment_status.is_paid()
    }

    /// Returns whether the customer must be refunded if the order ends without a ride. An order with amount 0 owes
    /// nothing.
    pub fn owes_refund(&self) -> bool {
        self.was_ever_paid() && self.amount_minor != Some(0)
    }

    /// Returns whether only a person can decide if the order was paid: its word is unknown, or reports a refund without
    /// a payment.
    pub fn is_payment_unclear(&self) -> bool {
        let is_unclear = matches!(self.payment_status, PaymentStatus::Other(_) | PaymentStatus::Refunded);
        is_unclear && !self.was_ever_paid() && self.amount_minor != Some(0)
    }

    /// Returns the progress of the refund; `None` if the order owes nothing.
    pub fn refund_progress(&self) -> Option<RefundProgress> {
        match self.status {
            OrderStatus::CancelledBySystemAfterPayment => Some(RefundProgress::Owed),
            OrderStatus::CancelledByUser | OrderStatus::CancelledByDriver => {
                self.owes_refund().then_some(RefundProgress::Owed)
            }
            OrderStatus::RefundPending => Some(RefundProgress::Started),
            OrderStatus::Refunded => Some(RefundProgress::Completed),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::order::fixture;

    fn paid() -> Order {
        let mut s = fixture::created_snapshot();
        s.order.set_payment(PaymentStatus::Paid, s.now);
        s.order
    }

    // Rule F16b: No payment status undoes that an order was ever paid.
    #[test]
    fn no_word_removes_the_payment() {
        for word in ["UNPAID", "PENDING", "SETTLEMENT", "REFUNDED", "CAPTURED", "CHARGEBACK"] {
            let (mut order, at) = (paid(), paid().paid_at);
            order.set_payment(word.to_owned().try_into().unwrap(), order.created_at + chrono::TimeDelta::days(1));
            assert_eq!((order.paid_at, order.owes_refund()), (at, true), "{word}");
            order.status = OrderStatus::CancelledByUser;
            assert_eq!(order.refund_progress(), Some(RefundProgress::Owed), "{word}");
        }
    }

    // Rule F16: No refund is due for an order with amount 0.
    #[test]
    fn order_with_amount_zero_owes_nothing() {
        let mut order = paid();
        order.amount_minor = Some(0);
        order.status = OrderStatus::CancelledByDriver;
        assert!(order.was_ever_paid() && !order.owes_refund());
        assert_eq!(order.refund_progress(), None);
        order.amount_minor = None;
        assert!(order.owes_refund(), "a person settles an unknown amount");
    }
}
