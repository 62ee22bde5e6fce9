//! Automatic maintenance, which keeps an installation correct. No other capability uses this crate.
//!
//! * [`capability`]: the struct through which other crates use this one.
//! * [`recovery`]: the reconciler, which restores jobs in Redis from the rows in Postgres.
//! * [`periodic`]: cleanup and statistics.
//! * [`audit`]: checks the invariants of the history. [`proof`]: checks them continuously, a few seconds after each
//!   change.

// The futures of handlers are nested deeper than the default limit.
#![recursion_limit = "256"]

pub mod audit;
pub mod capability;
pub mod periodic;
pub mod proof;
pub mod recovery;
