//! The command line of dispatchq. The services are in `crates/dispatch`, the HTTP interface in `crates/api`.

// Futures of commands are nested deeper than the default allows.
#![recursion_limit = "256"]

pub mod cli;
