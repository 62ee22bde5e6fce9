//! What keeps an installation right without people: reconciler, cleanup, statistics, checks of history.

// Futures of handlers are nested deeper than the default allows.
#![recursion_limit = "256"]

pub mod audit;
pub mod capability;
pub mod periodic;
pub mod recovery;
