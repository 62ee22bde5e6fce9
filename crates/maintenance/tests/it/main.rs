//! The tests of the reconciler, cleanup and the checks of the history.
//!
//! * `recovery`: what the reconciler puts back, and what it leaves alone. `timers`: no timer waits longer than promised.
//! * `periodic`: schedules run once, cleanup leaves what is needed, pauses last. `checker`: every invariant can fail.
//! * `retention`, `every_table`: what goes, and what stays. `days`: days of the history come and go beside open readers.
//! * `plans`: every sweep and every look reads an index. `schemas`: two installations in two schemas.

// Futures of requests are nested deeper than the default allows.
#![recursion_limit = "256"]

mod checker;
mod days;
mod every_table;
mod periodic;
mod plans;
mod recovery;
mod retention;
mod schemas;
mod timers;
