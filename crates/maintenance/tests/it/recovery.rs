//! What the reconciler puts back, and what it leaves alone.

mod dead_timers;
mod horizon;
mod lost_timers;
mod rebuild;
mod shards;
