//! Decisions of dispatch by one's own drivers.
//!
//! * [`decide`]: what an attempt's start, its timeout and the lifetime lead to.

pub mod decide;
