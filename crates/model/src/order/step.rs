//! Order steps that producers can subscribe to.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{EventReason, OrderStatus};

/// An order step, as subscriptions, webhooks and the stream name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
pub enum OrderStep {
    #[serde(rename = "order.created")]
    Created,
    /// The contents of the order were changed.
    #[serde(rename = "order.updated")]
    Updated,
    /// The order waits for its start. Sent at the creation and after each change of the pickup time.
    #[serde(rename = "order.scheduled")]
    Scheduled,
    /// An attempt started: drivers or a partner are asked.
    #[serde(rename = "order.offered")]
    Offered,
    /// A driver, or a different driver, has the order.
    #[serde(rename = "order.assigned")]
    Assigned,
    #[serde(rename = "order.picked_up")]
    PickedUp,
    #[serde(rename = "order.completed")]
    Completed,
    /// The order ended without a ride.
    #[serde(rename = "order.cancelled")]
    Cancelled,
    /// A person must decide. The order's timers are stopped.
    #[serde(rename = "order.held")]
    Held,
    /// The money was returned.
    #[serde(rename = "order.refunded")]
    Refunded,
}

impl OrderStep {
    pub const ALL: [Self; 10] = [
        Self::Created,
        Self::Updated,
        Self::Scheduled,
        Self::Offered,
        Self::Assigned,
        Self::PickedUp,
        Self::Completed,
        Self::Cancelled,
        Self::Held,
        Self::Refunded,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "order.created",
            Self::Updated => "order.updated",
            Self::Scheduled => "order.scheduled",
            Self::Offered => "order.offered",
            Self::Assigned => "order.assigned",
            Self::PickedUp => "order.picked_up",
            Self::Completed => "order.completed",
            Self::Cancelled => "order.cancelled",
            Self::Held => "order.held",
            Self::Refunded => "order.refunded",
        }
    }

    /// Returns the step of a history event, or `None` if producers do not get the event. `from` and `to` are equal if
    /// the order stays in its state.
    pub fn of_event(from: OrderStatus, to: OrderStatus, reason: EventReason) -> Option<Self> {
        match reason {
            EventReason::ContentsChanged => Some(Self::Updated),
            EventReason::AttemptStarted => Some(Self::Offered),
            EventReason::AssignedByHand | EventReason::DriverChanged => Some(Self::Assigned),
            EventReason::HeldForReview => Some(Self::Held),
            EventReason::PickupMoved => Some(Self::Scheduled),
            _ if from == to => None,
            _ => Self::of_transition(from, to),
        }
    }

    fn of_transition(from: OrderStatus, to: OrderStatus) -> Option<Self> {
        match to {
            OrderStatus::DriverAssigned => Some(Self::Assigned),
            OrderStatus::PickedUp => Some(Self::PickedUp),
            OrderStatus::Completed => Some(Self::Completed),
            OrderStatus::Refunded => Some(Self::Refunded),
            // A payment after the end moves a cancelled order to another cancelled state. This is not a second cancel.
            OrderStatus::CancelledBySystem
            | OrderStatus::CancelledBySystemAfterPayment
            | OrderStatus::CancelledByUser
            | OrderStatus::CancelledByDriver
                if !from.is_closed() =>
            {
                Some(Self::Cancelled)
            }
            _ => None,
        }
    }
}

impl fmt::Display for OrderStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
