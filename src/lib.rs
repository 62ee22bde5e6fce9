//! The command line of dispatchq. The capabilities are in `crates`, the processors of jobs in `workers`.

// Futures of commands are nested deeper than the default allows.
#![recursion_limit = "256"]

pub mod cli;
