//! Timers and orders that the reconciler repairs, and those that it does not change.

mod dead_timers;
mod horizon;
mod lost_timers;
mod rebuild;
mod scheduled;
mod shards;
