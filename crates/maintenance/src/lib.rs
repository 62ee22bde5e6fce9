//! Keeps an installation correct without people. No other capability uses this crate.
//!
//! * [`capability`]: the struct that the other crates hold.
//! * [`recovery`]: the reconciler, which restores in Redis what Postgres asks for.
//! * [`periodic`]: cleanup and statistics.
//! * [`audit`]: checks the invariants of the history.

// Futures of handlers are nested deeper than the default allows.
#![recursion_limit = "256"]

pub mod audit;
pub mod capability;
pub mod periodic;
pub mod recovery;
