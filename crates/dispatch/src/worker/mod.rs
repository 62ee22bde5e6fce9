//! The worker process: what it performs, how, and what runs beside it.
//!
//! * [`registry`]: the one list of all jobs and who performs them.
//! * [`step`]: what every timer of an order has in common: load, check, decide, write, follow up.
//! * [`process`]: puts queue runtime, reconciler, mirror and database gate together and drains them on a signal.
//! * [`gate`]: nothing is taken while Postgres does not answer.

pub mod gate;
pub mod process;
pub mod registry;
pub mod step;
