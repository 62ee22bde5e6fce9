//! Decisions on orders, as values.
//!
//! * [`change`]: the result of a decision. `steps`: the messages to the order's producer that follow from it.
//! * [`timers`]: the jobs an order must have, derived from its row. [`superseded`]: jobs that a change makes obsolete
//!   for good.
//! * [`actions`]: decisions on requests from people: accept, decline, pick up, complete, cancel, assign, redispatch.
//! * [`money`]: payment statuses, refunds and the answers of the payment service.
//! * [`review`]: hold and resume by staff.
//! * [`trip`]: stale trips. [`requeue`]: whether a dead job may be requeued.
//!
//! Decisions on attempts are in [`crate::fleet`] and [`crate::partner`].

pub mod actions;
pub mod change;
pub mod money;
pub mod requeue;
pub mod review;
mod steps;
pub mod superseded;
pub mod timers;
pub mod trip;

pub use change::{AlertSettlement, Change, Decision, OrderRefusal, RefundChange};
