//! Orders: the row, its states, and every decision on it, as values.
//!
//! * [`status`]: the states an order can be in.
//! * [`state`]: which state may follow which; drawn in docs/STATES.md.
//! * [`payment`]: what the producer says of the money.
//! * [`order`]: the row, and the snapshot every decision is made on.
//! * [`booking`]: what was asked of a partner. [`requeue`]: may a dead job have another life?
//! * [`timers`]: the jobs an order must have, derived from its row.
//! * [`hold`]: why an order is under review.
//! * [`trip`]: trips that do not go on.
//! * [`change`]: what a decision wants done, as a value.
//! * [`actions`]: decisions on what people ask for: accept, decline, pick up, complete, cancel, assign, redispatch.
//! * [`reason`]: the words of the history. [`view`]: an order as JSON.

pub mod actions;
pub mod booking;
pub mod change;
pub mod hold;
#[expect(clippy::module_inception, reason = "the row is one of the things an order is made of")]
pub mod order;
pub mod payment;
pub mod reason;
pub mod requeue;
pub mod state;
pub mod status;
pub mod timers;
pub mod trip;
pub mod view;

pub use booking::{Booking, BookingState};
pub use change::{AlertSettlement, Change, Decision, OrderRefusal};
pub use hold::HoldCause;
pub use order::{KnownPayment, Offer, OfferState, Order, PendingAlert, PendingCallback, PendingMessage, Snapshot};
pub use payment::PaymentStatus;
pub use reason::EventReason;
pub use status::OrderStatus;
