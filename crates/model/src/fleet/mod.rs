//! Decisions on dispatch with own drivers.
//!
//! * [`decide`]: the start of an attempt, its timeout and the end of the lifetime.
//! * [`deal`]: matches drivers with orders when several wait. [`freed`]: drivers that a change frees for other orders.

pub mod deal;
pub mod decide;
pub mod freed;
