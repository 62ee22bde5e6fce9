//! Payment words: the producer's reports about the money of an order.
//!
//! The list is open. An unknown word is stored unchanged, and a person decides what it means.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type, schema::AnyOfBuilder},
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PaymentStatus {
    Unpaid,
    Pending,
    Paid,
    Settlement,
    /// The producer reports that the money was returned. Only a person or the payment service settles a refund.
    Refunded,
    Other(String),
}

#[derive(Debug, thiserror::Error)]
#[error(
    "'{0}' is not a payment status: expected 1 to 32 capital letters or '_', such as UNPAID, PENDING, PAID, SETTLEMENT, REFUNDED"
)]
pub struct InvalidPaymentStatus(String);

impl PaymentStatus {
    /// Known words, in the order in which money moves.
    pub const KNOWN: [Self; 5] = [Self::Unpaid, Self::Pending, Self::Paid, Self::Settlement, Self::Refunded];

    pub fn as_str(&self) -> &str {
        match self {
            Self::Unpaid => "UNPAID",
            Self::Pending => "PENDING",
            Self::Paid => "PAID",
            Self::Settlement => "SETTLEMENT",
            Self::Refunded => "REFUNDED",
            Self::Other(word) => word,
        }
    }

    /// Returns whether this word replaces `before` on an order. Known words only move forward. After an unknown word, a word
    /// that precedes PAID replaces nothing. Nothing replaces REFUNDED.
    pub fn supersedes(&self, before: &Self) -> bool {
        match (self.payment_rank(), before.payment_rank()) {
            (Some(new), Some(old)) => new > old,
            (Some(_), None) => self.is_paid() || *self == Self::Refunded,
            (None, _) => self != before && *before != Self::Refunded,
        }
    }

    fn payment_rank(&self) -> Option<usize> {
        Self::KNOWN.iter().position(|known| known == self)
    }

    /// Returns whether the word reports a payment. An order that ever had such a word counts as paid, whatever word
    /// follows.
    pub fn is_paid(&self) -> bool {
        matches!(self, Self::Paid | Self::Settlement)
    }

    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Other(_))
    }
}

impl PartialSchema for PaymentStatus {
    fn schema() -> RefOr<Schema> {
        let known = ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(Self::KNOWN.map(|word| word.as_str().to_owned())))
            .description(Some("Words with a meaning; PAID and SETTLEMENT count as paid."));
        let other = ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^[A-Z_]{1,32}$"))
            .description(Some("Unknown word: accepted with a `Warning` header, and support is notified."));
        AnyOfBuilder::new()
            .item(known)
            .item(other)
            .description(Some("What the producer reports about the money of an order."))
            .into()
    }
}

impl ToSchema for PaymentStatus {}

impl TryFrom<String> for PaymentStatus {
    type Error = InvalidPaymentStatus;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Ok(match text.as_str() {
            "UNPAID" => Self::Unpaid,
            "PENDING" => Self::Pending,
            "PAID" => Self::Paid,
            "SETTLEMENT" => Self::Settlement,
            "REFUNDED" => Self::Refunded,
            word if (1..=32).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_') => {
                Self::Other(text)
            }
            _ => return Err(InvalidPaymentStatus(text.chars().take(40).collect())),
        })
    }
}

impl From<PaymentStatus> for String {
    fn from(status: PaymentStatus) -> Self {
        status.as_str().to_owned()
    }
}

impl fmt::Display for PaymentStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
