//! Periodic work. A schedule's next run is a job like any other: derived, put back when lost, performed by one worker.
//!
//! * [`schedule`]: when a schedule runs. Pure.
//! * [`tick`]: the job: one run, once, however many replicas there are.
//! * [`sweeps`], [`binding_sweeps`]: what each table loses once it has served its time. [`cleanup`]: does it.
//! * [`statistics`]: how queues, areas and the whole stand, kept for looking back.

pub mod binding_sweeps;
pub mod cleanup;
pub mod statistics;
pub mod sweeps;
