//! Decisions on orders, as values.
//!
//! * [`change`]: what a decision wants done. `steps`: what of it the order's producer hears.
//! * [`timers`]: the jobs an order must have, derived from its row. [`superseded`]: those that a change leaves behind for good.
//! * [`actions`]: decisions on what people ask for: accept, decline, pick up, complete, cancel, assign, redispatch.
//! * [`money`]: payment words, refunds and the answers of the payment service.
//! * [`review`]: staff stop an order, and let it go on.
//! * [`trip`]: trips that do not go on. [`requeue`]: may a dead job have another life?
//!
//! What an attempt leads to is in [`crate::fleet`] and [`crate::partner`].

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
