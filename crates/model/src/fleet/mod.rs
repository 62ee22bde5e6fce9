//! Decisions of dispatch by one's own drivers.
//!
//! * [`decide`]: what an attempt's start, its timeout and the lifetime lead to.
//! * [`policy`]: the durations and choices of a service type.
//! * [`ranking`]: which driver is asked first, and why.

pub mod decide;
pub mod policy;
pub mod ranking;
