//! The tests of bindings, on a simulated provider that judges each call.
//!
//! * `rows`: the tables hold what the model decides, and each call costs no index write.
//! * `commands`, `cycles`, `otps`: what a binding does. `messages`, `alerts`, `logs`, `explain`: what people see of it.
//! * `plans`: many bindings at once. `races`: changes that reach Redis in another order than they were written.
//! * `lost_workers`: what a worker that dies leaves behind. `restores`: what the reconciler puts back.
//! * `checker`: every invariant of bindings can fail.

// Futures of requests are nested deeper than the default allows.
#![recursion_limit = "256"]

mod alerts;
mod checker;
mod commands;
mod cycles;
mod explain;
mod logs;
mod lost_workers;
mod messages;
mod otps;
mod plans;
mod races;
mod restores;
mod rows;
