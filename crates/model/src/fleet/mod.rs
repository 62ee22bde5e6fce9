//! Decisions of dispatch by one's own drivers.
//!
//! * [`decide`]: what an attempt's start, its timeout and the lifetime lead to.
//! * [`deal`]: who is asked for which order, when several wait. [`freed`]: whom a change frees for other orders.

pub mod deal;
pub mod decide;
pub mod freed;
