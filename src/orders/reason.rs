//! The words of the history: why an event happened. Stored in `order_events.reason`, read by people and by the checker.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, sqlx::Type)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[sqlx(type_name = "text", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Reason {
    OrderCreated,
    /// An attempt begins: somebody is being asked.
    AttemptStarted,
    /// An attempt's outcome: accepted.
    OfferAccepted,
    /// An attempt's outcome: nobody answered in time.
    AttemptTimeout,
    /// An attempt's outcome: declined.
    OfferDeclined,
    /// An attempt's outcome: the order left while it ran.
    AttemptWithdrawn,
    /// Nobody near the pickup is free, and the service type says to tell a dispatcher.
    NoCandidates,
    /// Nobody near the pickup is free, and the service type says to search again later.
    SearchAgain,
    /// A dispatcher named the driver.
    AssignedByHand,
    /// A dispatcher had the search begin anew.
    Redispatched,
    PickedUp,
    Completed,
    CancelledByUser,
    /// No driver within the lifetime.
    LifetimeTimeout,
    /// What compensation found: nothing was paid.
    CompensatedUnpaid,
    /// What compensation found: a refund is due.
    CompensatedAfterPayment,
    /// A person must decide.
    HeldForReview,
    /// A person ended a held order.
    ReleasedByHand,
}

impl Reason {
    /// Does this event end an attempt?
    pub fn ends_attempt(self) -> bool {
        matches!(self, Self::OfferAccepted | Self::AttemptTimeout | Self::OfferDeclined | Self::AttemptWithdrawn)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::OrderCreated => "ORDER_CREATED",
            Self::AttemptStarted => "ATTEMPT_STARTED",
            Self::OfferAccepted => "OFFER_ACCEPTED",
            Self::AttemptTimeout => "ATTEMPT_TIMEOUT",
            Self::OfferDeclined => "OFFER_DECLINED",
            Self::AttemptWithdrawn => "ATTEMPT_WITHDRAWN",
            Self::NoCandidates => "NO_CANDIDATES",
            Self::SearchAgain => "SEARCH_AGAIN",
            Self::AssignedByHand => "ASSIGNED_BY_HAND",
            Self::Redispatched => "REDISPATCHED",
            Self::PickedUp => "PICKED_UP",
            Self::Completed => "COMPLETED",
            Self::CancelledByUser => "CANCELLED_BY_USER",
            Self::LifetimeTimeout => "LIFETIME_TIMEOUT",
            Self::CompensatedUnpaid => "COMPENSATED_UNPAID",
            Self::CompensatedAfterPayment => "COMPENSATED_AFTER_PAYMENT",
            Self::HeldForReview => "HELD_FOR_REVIEW",
            Self::ReleasedByHand => "RELEASED_BY_HAND",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
