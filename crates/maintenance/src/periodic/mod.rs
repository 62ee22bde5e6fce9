//! Periodic work. The next run of a schedule is a derived job, restored when lost and performed by one worker: `workers/src/tick.rs`.
//!
//! * [`sweeps`], [`binding_sweeps`]: the rows that each table loses after their time. [`cleanup`]: removes them.
//! * [`statistics`]: snapshots of queues, areas and totals for later comparison.

pub mod binding_sweeps;
pub mod cleanup;
pub mod statistics;
pub mod sweeps;
