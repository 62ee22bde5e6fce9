//! The words of the history: why an event happened. Stored in `order_events.reason`, read by people and by the checker.

use serde::{Deserialize, Serialize};

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, sqlx::Type, strum::IntoStaticStr, strum::Display,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[sqlx(type_name = "text", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EventReason {
    OrderCreated,
    /// An attempt begins: a driver is asked, or a partner booked.
    AttemptStarted,
    /// An attempt's outcome: accepted.
    OfferAccepted,
    /// An attempt's outcome: no answer in time.
    AttemptTimeout,
    /// An attempt's outcome: declined by the last of those asked.
    OfferDeclined,
    /// An attempt's outcome: the last of those asked cannot answer: not reached, or on another order meanwhile.
    OfferWithdrawn,
    /// One of several asked declined; the others may still answer.
    DriverDeclined,
    /// One of several asked cannot answer; the others may.
    DriverWithdrawn,
    /// An attempt's outcome: the order left while it ran.
    AttemptWithdrawn,
    /// An attempt's outcome: the partner found a driver.
    DriverFound,
    /// An attempt's outcome: the partner found none, or gave the booking back.
    NoDriver,
    /// An attempt's outcome: the partner will not take the booking.
    BookingRefused,
    /// An attempt's outcome: the partner knows nothing of the booking any more.
    BookingNotFound,
    /// The partner has the booking.
    Booked,
    /// The partner's job id is known: it called back.
    JobIdViaCallback,
    /// The partner's job id is known: we asked.
    JobIdViaProactive,
    /// The partner named another job id; it is asked which holds.
    JobIdConflict,
    /// The partner said which job id holds.
    JobIdChanged,
    /// The partner confirmed that the booking is cancelled.
    BookingCancelled,
    /// The partner would not cancel: its trip is under way.
    BookingNotCancelled,
    /// The partner was asked for a job id for as long as is worth it.
    PollingEnded,
    /// The driver gave the order back.
    DriverCancelled,
    /// A dispatcher took the order from its driver.
    TakenBack,
    /// The partner sent another driver.
    DriverChanged,
    /// A callback of the partner came before one that it follows, or after one that follows it.
    CallbackOutOfOrder,
    /// The producer said something new of the money.
    PaymentChanged,
    /// Money came for an order that had ended without.
    PaidAfterCancel,
    /// A payment was reported after the money went back. It creates no new debt.
    PaidAfterRefund,
    /// Support has begun the refund.
    RefundStarted,
    /// The payment service does not pay back.
    RefundFailed,
    /// A callback named a refund id that the payment service did not return. It settles nothing.
    RefundIdMismatch,
    /// The payment service paid back after the refund had been settled by hand.
    RefundedTwice,
    /// The money is back.
    Refunded,
    /// No driver near the pickup is free, and the service type says to tell a dispatcher.
    NoCandidates,
    /// No driver near the pickup is free, and the service type says to search again later.
    SearchAgain,
    /// A dispatcher named the driver.
    AssignedByHand,
    /// A dispatcher restarted the search.
    Redispatched,
    PickedUp,
    Completed,
    /// The trip's next step is overdue; support was told.
    TripStale,
    CancelledByUser,
    /// No driver within the lifetime.
    LifetimeTimeout,
    /// What compensation found: nothing was paid.
    CompensatedUnpaid,
    /// What compensation found: a refund is due.
    CompensatedAfterPayment,
    /// A person must decide.
    HeldForReview,
    /// A person let a held order go on.
    ResumedByHand,
    /// A person ended a held order.
    ReleasedByHand,
    /// A person gave a dead job of the order another life.
    RequeuedByHand,
}

impl EventReason {
    /// Does this event end an attempt?
    pub fn ends_attempt(self) -> bool {
        matches!(
            self,
            Self::OfferAccepted
                | Self::AttemptTimeout
                | Self::OfferDeclined
                | Self::OfferWithdrawn
                | Self::AttemptWithdrawn
                | Self::DriverFound
                | Self::NoDriver
                | Self::BookingRefused
                | Self::BookingNotFound
        )
    }

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
