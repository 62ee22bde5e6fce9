//! The work of staff.
//!
//! * [`capability`]: the struct that the other crates hold.
//! * [`operator`]: actions on single orders and jobs. [`plans`]: mass actions. [`dead_letters`]: jobs that failed for good.
//! * [`explain`]: why an order is in its state, and what to do. [`reports`]: counts for people and dashboards.
//! * [`privacy`]: erases the data of a person.
//! * [`tick_schedule`]: the job of a schedule's next run. Pure.

// Futures of handlers are nested deeper than the default allows.
#![recursion_limit = "256"]

pub mod capability;
pub mod dead_letters;
pub mod explain;
pub mod operator;
pub mod plans;
pub mod privacy;
pub mod reports;
pub mod tick_schedule;
