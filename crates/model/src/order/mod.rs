//! Orders: the row and its states. What is decided on it is in [`crate::decide`].
//!
//! * [`status`]: the states an order can be in.
//! * [`state`]: which state may follow which; drawn in docs/STATES.md.
//! * [`payment`]: payment words. [`refund`]: whether the order was ever paid, and how far its refund is.
//! * [`order`]: the row, and the snapshot every decision is made on.
//! * [`deadlines`]: those of its columns that timers follow from.
//! * [`booking`]: what was asked of a partner.
//! * [`hold`]: why an order is under review.
//! * [`reason`]: the words of the history. `step`: those of its events that producers hear of.

pub mod booking;
pub mod deadlines;
pub mod hold;
#[expect(clippy::module_inception, reason = "the row is one of the things an order is made of")]
pub mod order;
pub mod payment;
pub mod reason;
pub mod refund;
pub mod state;
pub mod status;
mod step;

pub use booking::{Booking, BookingState};
pub use deadlines::OrderDeadlines;
pub use hold::HoldCause;
pub use order::{
    ArrivedCallback, AskedRefund, KnownPayment, Offer, OfferState, Order, PendingAlert, PendingCallback,
    PendingMessage, PollingShare, Snapshot,
};
pub use payment::PaymentStatus;
pub use reason::EventReason;
pub use refund::RefundProgress;
pub use status::OrderStatus;
pub use step::OrderStep;
