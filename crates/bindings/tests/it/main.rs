//! The tests of bindings, on a simulated provider that checks each call.
//!
//! * `rows`: the tables store the decisions of the model, and a call writes no index.
//! * `commands`, `cycles`, `otps`: behaviour of a binding. `messages`, `alerts`, `logs`, `explain`: its visible
//!   reports.
//! * `plans`: many bindings at once. `races`: changes that reach Redis in another order than they were committed.
//! * `lost_workers`: workers that die. `restores`: repairs by the reconciler.
//! * `checker`: every invariant of bindings can fail.

// Nested request futures exceed the default limit.
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
