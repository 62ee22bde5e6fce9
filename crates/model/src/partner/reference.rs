//! Our name for a booking, which partners repeat in callbacks.

use std::{fmt, str::FromStr};

use jobs::OrderId;

/// An attempt of an order, as its partner knows it: `ORD-1:2`. Repeated calls with the same reference count as one
/// booking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BookingReference {
    pub order: OrderId,
    pub attempt_no: i32,
}

impl BookingReference {
    /// Returns the order of a reference, even if its attempt is invalid.
    pub fn order_in(text: &str) -> Option<OrderId> {
        text.rsplit_once(':')?.0.parse().ok()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a reference of dispatchq: expected an order id, ':' and the number of an attempt")]
pub struct InvalidReference;

impl fmt::Display for BookingReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.order, self.attempt_no)
    }
}

impl FromStr for BookingReference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        let (order, attempt) = text.rsplit_once(':').ok_or(InvalidReference)?;
        let order = order.parse().map_err(|_| InvalidReference)?;
        Ok(Self { order, attempt_no: attempt.parse().map_err(|_| InvalidReference)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_read_as_it_is_written() {
        let reference = BookingReference { order: "ORD-1".parse().unwrap(), attempt_no: 12 };
        assert_eq!(reference.to_string(), "ORD-1:12");
        assert_eq!("ORD-1:12".parse(), Ok(reference));
        for other in ["", "ORD-1", "ORD-1:", ":1", "ORD-1:x", "ORD 1:1", "ORD-1:1:x"] {
            assert_eq!(other.parse::<BookingReference>(), Err(InvalidReference), "{other}");
        }
        assert_eq!(BookingReference::order_in("ORD-1:x"), "ORD-1".parse().ok());
        assert_eq!(BookingReference::order_in("ORD-1"), None);
    }
}
