//! The worker process: what it performs, how, and what runs beside it.
//!
//! * [`process`]: puts queue runtime, reconciler, mirror and database gate together and drains them on a signal.

pub mod process;
