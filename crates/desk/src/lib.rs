//! Staff functions.
//!
//! * [`capability`]: the struct through which other crates use this one.
//! * [`operator`]: actions on single orders and jobs. [`plans`]: bulk actions. [`dead_letters`]: jobs with no retries
//!   left.
//! * [`explain`]: the reason for an order's state, and advice. [`reports`]: counts for people and dashboards.
//! * [`privacy`]: erasure of a person's data.
//! * [`tick_schedule`]: the job of a schedule's next run. Pure.

// The futures of handlers are nested deeper than the default limit.
#![recursion_limit = "256"]

pub mod capability;
pub mod dead_letters;
pub mod explain;
pub mod operator;
pub mod plans;
pub mod privacy;
pub mod reports;
pub mod tick_schedule;
