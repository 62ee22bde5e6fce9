//! Decisions on orders, as values.
//!
//! * [`change`]: the result of a decision. `steps`: the messages to the order's producer that follow from it.
//! * [`timers`]: the jobs an order must have, derived from its row. [`superseded`]: jobs that a change makes obsolete
//!   for good.
//! * [`actions`]: decisions on requests from people: accept, decline, pick up, complete, cancel, assign, redispatch.
//! * [`contents`]: changes to the contents of an order.
//! * [`money`]: payment statuses, refunds and the answers of the payment service.
//! * [`review`]: hold and resume by staff.
//! * [`schedule`]: start, warning and moves of scheduled orders.
//! * [`test_clock`]: times to which the test clock of `dispatchq dev` moves.
//! * [`trip`]: stale trips. [`requeue`]: whether a dead job may be requeued.
//!
//! Decisions on attempts are in [`crate::fleet`] and [`crate::partner`].

pub mod actions;
pub mod change;
pub mod contents;
pub mod money;
pub mod requeue;
pub mod review;
pub mod schedule;
mod steps;
pub mod superseded;
pub mod test_clock;
pub mod timers;
pub mod trip;

pub use change::{AlertSettlement, Change, ContentsChange, Decision, OrderRefusal, RefundChange};
