//! Orders: the rows, their states, and the one way they change.
//!
//! * [`status`]: the states an order can be in.
//! * [`state`]: which state may follow which. Pure; drawn in docs/STATES.md.
//! * [`payment`]: what the producer says of the money.
//! * [`order`]: the row, and the snapshot every decision is made on.
//! * [`booking`]: what we asked of a partner.
//! * [`timers`]: the jobs an order must have, derived from its row. Pure.
//! * [`trip`]: trips that do not go on. Pure.
//! * [`change`]: what a decision wants done, as a value. Pure.
//! * [`actions`]: decisions on what people ask for: accept, decline, pick up, complete, cancel, assign, redispatch. Pure.
//! * [`reason`]: the words of the history.
//! * [`act`]: changes an order on request, and enqueues what follows.
//! * [`unsent`]: orders whose timers Redis did not take.
//! * [`store`]: loads snapshots and writes changes; the only code that writes to `orders`.
//! * [`create`]: how an order comes into being.
//! * [`query`]: reads for people: lists and timelines. [`census`]: counts of open orders.
//! * [`metrics`]: counters of what changes; [`area_label`]: areas as their labels.

pub mod act;
pub mod actions;
pub(crate) mod area_label;
pub mod booking;
pub mod census;
pub mod change;
pub mod create;
pub mod metrics;
pub mod order;
pub mod payment;
pub mod query;
pub mod reason;
pub mod state;
pub mod status;
pub mod store;
pub mod timers;
pub mod trip;
pub mod unsent;

pub use booking::{Booking, BookingState};
pub use change::{Change, Decision, Refusal, Settlement};
pub use order::{Offer, OfferState, Order, PaymentEvent, PendingAlert, PendingCallback, PendingMessage, Snapshot};
pub use payment::PaymentStatus;
pub use reason::Reason;
pub use status::Status;
