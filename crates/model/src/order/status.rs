//! States of an order. The names come from the requirement documents.

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
    /// Waits for the start of its dispatch, before its pickup time. Ends when an area has room at the start, or with a cancel.
    Scheduled,
    /// Served by a partner whose job id is not known yet. Ends with the job id or a cancel.
    PendingJobId,
    /// The partner's job id is known. The partner searches for a driver.
    Assigned,
    /// Own fleet: drivers are asked. Ends when a driver accepts, when no driver is left to ask, or with a cancel.
    Dispatching,
    /// Automatic dispatch stopped. A dispatcher must assign, redispatch or cancel.
    Pending,
    /// A driver is on the way.
    DriverAssigned,
    /// The driver has picked up the passenger.
    PickedUp,
    /// Final: done.
    Completed,
    /// The system ends the order, and its payment is still to be settled.
    Compensating,
    /// Final: the system ended an unpaid order.
    CancelledBySystem,
    /// The system ended a paid order. Support must refund it.
    CancelledBySystemAfterPayment,
    /// Support started the refund.
    RefundPending,
    /// Final: the money was returned.
    Refunded,
    /// Ended by the customer, or by staff for the customer.
    CancelledByUser,
    /// Ended because the driver cancelled too late to find another driver.
    CancelledByDriver,
}

impl OrderStatus {
    pub const ALL: [Self; 15] = [
        Self::Scheduled,
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

    /// Returns whether dispatch has ended. Only the payment can still change.
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

    /// Returns whether the order searches for a driver, so that it counts as waiting in its area.
    pub fn is_searching(self) -> bool {
        matches!(self, Self::PendingJobId | Self::Assigned | Self::Dispatching | Self::Pending)
    }

    /// Returns whether the order has no driver and its lifetime can end it: it is scheduled or searching.
    pub fn lacks_driver(self) -> bool {
        self == Self::Scheduled || self.is_searching()
    }

    /// Returns whether a driver is assigned to this order.
    pub fn occupies_driver(self) -> bool {
        matches!(self, Self::DriverAssigned | Self::PickedUp)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("'{0}' is not an order status; known are {known}", known = OrderStatus::ALL.map(OrderStatus::as_str).join(", "))]
pub struct UnknownOrderStatus(String);

impl FromStr for OrderStatus {
    type Err = UnknownOrderStatus;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| UnknownOrderStatus(text.to_owned()))
    }
}
