//! The work of staff: single orders and jobs, mass actions, dead letters, reports, privacy.

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
