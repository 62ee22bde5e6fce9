//! Orders: the row and its states. Decisions on orders are in [`crate::decide`].
//!
//! * [`status`]: the states of an order.
//! * [`state`]: the allowed transitions, drawn in docs/STATES.md.
//! * [`payment`]: payment statuses. [`refund`]: whether the order was ever paid, and the progress of its refund.
//! * [`order`]: the row, and the snapshot that decisions use.
//! * [`deadlines`]: the columns that timers are derived from.
//! * [`booking`]: requests to partners.
//! * [`hold`]: why an order is under review.
//! * [`reason`]: reasons in the order history. `step`: the events that are sent to producers.

pub mod booking;
pub mod deadlines;
pub mod hold;
#[expect(clippy::module_inception, reason = "the module order contains the row type")]
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
    ArrivedCallback, AskedRefund, CreatedSchedule, KnownPayment, Offer, OfferState, Order, PendingAlert,
    PendingCallback, PendingMessage, PollingShare, Snapshot,
};
pub use payment::PaymentStatus;
pub use reason::EventReason;
pub use refund::RefundProgress;
pub use status::OrderStatus;
pub use step::OrderStep;
