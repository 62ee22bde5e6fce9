//! Tests of the reconciler, cleanup and the history checks.
//!
//! * `recovery`: timers and orders that the reconciler repairs. `timers`: no timer waits longer than documented.
//! * `periodic`: schedules run once, cleanup keeps required rows, pauses persist. `checker`: every invariant can fail.
//! * `retention`, `every_table`: removed and kept rows. `days`: daily partitions are added and dropped while readers
//!   are open.
//! * `supply`: the supply log.
//! * `proof`: the continuous proof finds each planted fault, and no other. `proof_upkeep`: cleanup and erasure do not
//!   depend on it.
//! * `plans`: every sweep and every search reads an index. `schemas`: two installations in two schemas.

// Request futures are nested deeper than the default allows.
#![recursion_limit = "256"]

mod checker;
mod days;
mod every_table;
mod periodic;
mod plans;
mod proof;
mod proof_upkeep;
mod recovery;
mod retention;
mod schemas;
mod supply;
mod timers;
