//! The states an order can be in. The names are those of the requirement documents.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    sqlx::Type,
    strum::IntoStaticStr,
    strum::Display,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[sqlx(type_name = "text", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OrderStatus {
    /// Booked at a partner, whose job id is not known yet. Left with the job id, or by cancellation.
    PendingJobId,
    /// The partner's job id is known; the partner looks for a driver.
    Assigned,
    /// Own fleet: drivers are being asked. Left when one accepts, when no driver is left to ask, or by cancellation.
    Dispatching,
    /// Automatic dispatch gave up: a dispatcher must assign, redispatch or cancel.
    Pending,
    /// A driver is on the way.
    DriverAssigned,
    /// The passenger is aboard, the work has begun.
    PickedUp,
    /// Final: done.
    Completed,
    /// The system ends the order and is about to settle what that means for the payment.
    Compensating,
    /// Final: ended by the system, nothing was paid.
    CancelledBySystem,
    /// Ended by the system after payment: support must refund.
    CancelledBySystemAfterPayment,
    /// Support has begun the refund.
    RefundPending,
    /// Final: the money is back.
    Refunded,
    /// Ended by the customer, or by staff for the customer.
    CancelledByUser,
    /// Ended because its driver cancelled too late for another one.
    CancelledByDriver,
}

impl OrderStatus {
    pub const ALL: [Self; 14] = [
        Self::PendingJobId,
        Self::Assigned,
        Self::Dispatching,
        Self::Pending,
        Self::DriverAssigned,
        Self::PickedUp,
        Self::Completed,
        Self::Compensating,
        Self::CancelledBySystem,
        Self::CancelledBySystemAfterPayment,
        Self::RefundPending,
        Self::Refunded,
        Self::CancelledByUser,
        Self::CancelledByDriver,
    ];

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Dispatch is over. Only the money may still move.
    pub fn is_closed(self) -> bool {
        matches!(
            self,
            Self::Completed
                | Self::CancelledBySystem
                | Self::CancelledBySystemAfterPayment
                | Self::RefundPending
                | Self::Refunded
                | Self::CancelledByUser
                | Self::CancelledByDriver
        )
    }

    /// A driver is wanted and not found yet: the lifetime runs.
    pub fn is_searching(self) -> bool {
        matches!(self, Self::PendingJobId | Self::Assigned | Self::Dispatching | Self::Pending)
    }

    /// A driver is bound to this order.
    pub fn occupies_driver(self) -> bool {
        matches!(self, Self::DriverAssigned | Self::PickedUp)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("'{0}' is no order status; known are {known}", known = OrderStatus::ALL.map(OrderStatus::as_str).join(", "))]
pub struct UnknownOrderStatus(String);

impl FromStr for OrderStatus {
    type Err = UnknownOrderStatus;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| UnknownOrderStatus(text.to_owned()))
    }
}
