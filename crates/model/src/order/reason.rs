//! Reasons of events in the order history. They are stored in `order_events.reason` and read by people and by the
//! checker.

use serde::{Deserialize, Serialize};

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, sqlx::Type, strum::IntoStaticStr, strum::Display,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[sqlx(type_name = "text", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EventReason {
    OrderCreated,
    /// The contents of the order were changed, such as its destination.
    ContentsChanged,
    /// The pickup time of a scheduled order was changed.
    PickupMoved,
    /// Dispatch of a scheduled order started.
    DispatchStarted,
    /// The area was full at the start of a scheduled order. The order asks again later.
    StartDelayed,
    /// A scheduled order had no driver shortly before its pickup. Dispatchers were notified.
    NoDriverBeforePickup,
    /// An attempt starts: a driver is asked, or a partner is booked.
    AttemptStarted,
    /// The attempt asks further drivers in a circle that is at least as wide.
    WaveStarted,
    /// Attempt outcome: accepted.
    OfferAccepted,
    /// Attempt outcome: no answer in time.
    AttemptTimeout,
    /// Attempt outcome: the last of the asked drivers declined.
    OfferDeclined,
    /// Attempt outcome: the last of the asked drivers cannot answer. The driver was not reached, or has taken another
    /// order.
    OfferWithdrawn,
    /// One of several asked drivers declined. The others may still answer.
    DriverDeclined,
    /// One of several asked drivers cannot answer. The others may still answer.
    DriverWithdrawn,
    /// Attempt outcome: withdrawn, because the order ended, was held or was assigned by hand.
    AttemptWithdrawn,
    /// Attempt outcome: the partner found a driver.
    DriverFound,
    /// Attempt outcome: the partner found no driver, or returned the booking.
    NoDriver,
    /// Attempt outcome: the partner refused the booking.
    BookingRefused,
    /// Attempt outcome: the partner no longer knows the booking.
    BookingNotFound,
    /// The partner accepted the booking.
    Booked,
    /// The partner sent its job id in a callback.
    JobIdViaCallback,
    /// The partner returned its job id when polled.
    JobIdViaProactive,
    /// The partner sent a different job id. It is polled for the valid one.
    JobIdConflict,
    /// The partner reported which job id is valid.
    JobIdChanged,
    /// The partner confirmed that the booking is cancelled.
    BookingCancelled,
    /// The partner refused the cancel because its trip is under way.
    BookingNotCancelled,
    /// The partner did not take the changed contents of the booking.
    BookingNotUpdated,
    /// Polling for the job id ended: its time budget is used up.
    PollingEnded,
    /// The driver gave the order back.
    DriverCancelled,
    /// A dispatcher took the order back from its driver.
    TakenBack,
    /// The partner sent another driver.
    DriverChanged,
    /// A partner's callback arrived before its predecessor, or after its successor.
    CallbackOutOfOrder,
    PaymentChanged,
    /// A payment arrived for an order that had ended unpaid.
    PaidAfterCancel,
    /// A payment was reported after the refund. It creates no new debt.
    PaidAfterRefund,
    RefundStarted,
    RefundFailed,
    /// A callback named a refund id that the payment service did not return. It settles nothing.
    RefundIdMismatch,
    /// The payment service paid the refund after it had been settled by hand.
    RefundedTwice,
    /// The money was returned.
    Refunded,
    /// No driver near the pickup is free, and the service type notifies a dispatcher.
    NoCandidates,
    /// No driver near the pickup is free, and the service type searches again later.
    SearchAgain,
    /// A dispatcher assigned the driver.
    AssignedByHand,
    Redispatched,
    PickedUp,
    Completed,
    /// The next step of the trip is overdue. Support was notified.
    TripStale,
    CancelledByUser,
    /// No driver was found within the lifetime.
    LifetimeTimeout,
    /// Compensation result: nothing was paid.
    CompensatedUnpaid,
    /// Compensation result: a refund is due.
    CompensatedAfterPayment,
    /// The order is held until a person decides.
    HeldForReview,
    /// A person resumed a held order.
    ResumedByHand,
    /// A person ended a held order.
    ReleasedByHand,
    /// A person requeued a dead job of the order.
    RequeuedByHand,
}

impl EventReason {
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
