//! What the producer says of the money. We never guess: a word we do not know is kept as it is and decided by a person.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PaymentStatus {
    Unpaid,
    Pending,
    Paid,
    Settlement,
    /// Anything else, in its own word.
    Other(String),
}

#[derive(Debug, thiserror::Error)]
#[error("'{0}' is no payment status: expected 1 to 32 capital letters or '_', as UNPAID, PENDING, PAID, SETTLEMENT")]
pub struct InvalidPaymentStatus(String);

impl PaymentStatus {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Unpaid => "UNPAID",
            Self::Pending => "PENDING",
            Self::Paid => "PAID",
            Self::Settlement => "SETTLEMENT",
            Self::Other(word) => word,
        }
    }

    /// Is this news after `before`? Between the words we know money only moves forward; a word we do not know is taken as it
    /// comes, for a person will decide.
    pub fn supersedes(&self, before: &Self) -> bool {
        match (self.payment_rank(), before.payment_rank()) {
            (Some(new), Some(old)) => new > old,
            // A word we do not know may come after PAID: what came before PAID never undoes it.
            (Some(_), None) => self.is_paid(),
            (None, _) => self != before,
        }
    }

    fn payment_rank(&self) -> Option<u8> {
        match self {
            Self::Unpaid => Some(0),
            Self::Pending => Some(1),
            Self::Paid => Some(2),
            Self::Settlement => Some(3),
            Self::Other(_) => None,
        }
    }

    /// Money has moved: a cancelled order needs a refund.
    pub fn is_paid(&self) -> bool {
        matches!(self, Self::Paid | Self::Settlement)
    }
}

impl TryFrom<String> for PaymentStatus {
    type Error = InvalidPaymentStatus;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Ok(match text.as_str() {
            "UNPAID" => Self::Unpaid,
            "PENDING" => Self::Pending,
            "PAID" => Self::Paid,
            "SETTLEMENT" => Self::Settlement,
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
