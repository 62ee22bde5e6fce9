//! Periodic work. The next run of a schedule is a derived job, which is restored if it is lost. `workers/src/tick.rs`
//! runs it.
//!
//! * [`sweeps`], [`binding_sweeps`]: statements that remove rows of each table after their retention time. [`cleanup`]:
//!   runs them.
//! * [`statistics`]: snapshots of queues, areas and totals for later comparison. [`supply`]: drivers and offers of each
//!   minute.

pub mod binding_sweeps;
pub mod cleanup;
pub mod statistics;
pub mod supply;
pub mod sweeps;
