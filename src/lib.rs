//! The command line of dispatchq. The capabilities are in `crates`, the job processors in `workers`.

// Futures of commands are nested more deeply than the default limit allows.
#![recursion_limit = "256"]

pub mod cli;
