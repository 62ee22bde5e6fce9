//! The worker process.
//!
//! * [`process`]: starts the queue runtime and its background tasks, and drains them on a signal.

pub mod process;
